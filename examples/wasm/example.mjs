/* example.mjs MODEL [PROMPT] - the wrapper in ten lines: node build/wasm/example.mjs build/stories.tfm "Once upon a time" */
import { load } from './tfm.mjs';

const [, , path, prompt = 'Once upon a time'] = process.argv;
const model = await load(path);
const session = model.session({ context: 512 });
process.stdout.write(prompt);
for await (const text of session.generate(prompt, { tokens: 200, seed: 1 })) process.stdout.write(text);
process.stdout.write('\n');
model.close();
