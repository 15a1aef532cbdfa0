/* bench.mjs BUILD [MODEL.gguf] - speed in headless Chromium, one thread, one run, taking turns: each module that the browser
 * runs, wllama (if BUILD/npm has @wllama/wllama), and the native AVX2 pass. Medians of tokens per second, and what the
 * module that the wrapper chooses has of the others. The scalar module, which is slow, has one turn. */
import fs from 'node:fs';
import path from 'node:path';
import { build, dir, native, smollm2 } from './common.mjs';
import { serve } from './serve.mjs';
import { launch } from './browser.mjs';

const PROMPT = 256, TOKENS = 48, ROUNDS = Number(process.env.ROUNDS ?? 3);
const gguf = process.argv[3] ?? smollm2();
if (!gguf) { console.log('skipped: no SmolLM2 (make real fetches it)'); process.exit(0); }
const wllama = path.join(build, 'npm', 'node_modules', '@wllama', 'wllama', 'esm');
const model = path.join(dir, 'bench.tfm');
native('tfm-convert', [gguf, model]);
fs.writeFileSync(path.join(dir, 'bench.html'), '<!DOCTYPE html><title>bench</title>');

const files = { 'model.gguf': gguf, 'model.tfm': model };
if (fs.existsSync(wllama)) for (const f of ['index.js', 'wasm/wllama.wasm']) files[`wllama/${f}`] = path.join(wllama, f);
const server = await serve(dir, files, false); // without shared memory: one thread for both
const browser = await launch();
if (!browser) { console.log('skipped: no Chromium or no playwright-core'); process.exit(0); }
const page = await browser.newPage();
page.setDefaultTimeout(600000);
page.on('pageerror', e => console.log('page:', e.message));
await page.goto(`${server.url}bench.html`);

/* The library in a Worker: { prefill, decode }. */
async function ours(variant) {
    return page.evaluate(async ({ variant, PROMPT, TOKENS }) => {
        const source = `import { load } from '${location.origin}/tfm.mjs';
            self.onmessage = async ({ data }) => {
                const m = await load('${location.origin}/model.tfm', { variant: data.variant });
                const s = m.session({ context: 1024 }), ids = [...m.tokenize('The quick brown fox jumps over the lazy dog. '.repeat(60))].slice(0, data.PROMPT);
                await s.eval(ids); for (let i = 0; i < 8; i++) await s.eval([ids[i]]); // engines compile as they go
                await new Promise(r => setTimeout(r, 300));
                s.rewind(0);
                const a = performance.now(); await s.eval(ids);
                const b = performance.now(); for (let i = 0; i < data.TOKENS; i++) await s.eval([ids[i]]);
                const c = performance.now();
                self.postMessage({ prefill: 1000 * ids.length / (b - a), decode: 1000 * data.TOKENS / (c - b), variant: m.variant });
            };`;
        const worker = new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
        const answer = new Promise((resolve, reject) => { worker.onmessage = e => resolve(e.data); worker.onerror = e => reject(new Error(e.message)); });
        worker.postMessage({ variant, PROMPT, TOKENS });
        const result = await answer;
        worker.terminate();
        return result;
    }, { variant, PROMPT, TOKENS });
}

async function theirs() {
    return page.evaluate(async ({ TOKENS }) => {
        const { Wllama } = await import('/wllama/index.js');
        const w = new Wllama({ default: `${location.origin}/wllama/wasm/wllama.wasm` }, { suppressNativeLog: true });
        const blob = await (await fetch('/model.gguf')).blob();
        await w.loadModel([blob], { n_ctx: 1024, n_threads: 1, n_gpu_layers: 0, n_batch: 256 });
        const run = async (prompt, n) => w.createCompletion({ prompt, max_tokens: n, n_predict: n, temperature: 0, ignore_eos: true, cache_prompt: false });
        await run('Hello there', 8);
        const answer = await run('The quick brown fox jumps over the lazy dog. '.repeat(26), TOKENS);
        const t = answer.timings;
        await w.exit();
        return { prefill: t.prompt_per_second, decode: t.predicted_per_second, n: t.prompt_n };
    }, { TOKENS });
}

function nativeSpeed(isa) {
    const out = JSON.parse(native('tfm-bench', [model, '-p', PROMPT, '-n', TOKENS, '-t', '1', '-r', '1', '-c', '1024', '--isa', isa, '--json']).toString());
    return { prefill: out.prefill_tokens_per_s, decode: out.decode_tokens_per_s };
}

/* What the browser runs, the wrapper's choice first. */
const modules = await page.evaluate(async () => {
    const { features } = await import('/tfm.mjs');
    const can = features(), list = ['scalar', ...can.simd ? ['simd'] : [], ...can.relaxed ? ['relaxed'] : []];
    if (can.relaxed) list.splice(can.dot ? list.length : list.length - 1, 0, 'dot'); // runs anyway, but slowly
    return list.reverse();
});
const [best] = modules;
const turns = [...modules.map(name => [name, () => ours(name)]), ['wllama', theirs], ['native avx2', () => nativeSpeed('avx2')]]
    .filter(([name]) => name !== 'wllama' || files['wllama/index.js']);
const runs = {};
for (let i = 0; i < ROUNDS; i++) {
    for (const [name, run] of turns) {
        if (name === 'scalar' && i) continue;
        try { (runs[name] ??= []).push(await run()); } catch (e) { console.log(`${name}: ${String(e.message).split('\n')[0]}`); }
    }
}
const median = list => list.sort((a, b) => a - b)[list.length >> 1];
const of = (name, what) => median(runs[name].map(r => r[what]));
const ratio = (name, what) => (of(best, what) / of(name, what)).toFixed(2);
console.log(`${await browser.version()}; the wrapper chooses ${best}\ntokens/s       prompt   decode   ${best} / this`);
for (const name of Object.keys(runs).filter(name => runs[name].length)) {
    console.log(name.padEnd(13) + of(name, 'prefill').toFixed(1).padStart(8) + of(name, 'decode').toFixed(1).padStart(9) +
        ratio(name, 'prefill').padStart(9) + ratio(name, 'decode').padStart(7));
}
await browser.close();
server.close();
