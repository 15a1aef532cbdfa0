/* What the tests of the WebAssembly modules share: counting, the native programs as the truth, the models. */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

export const build = path.resolve(process.argv[2] ?? 'build');
export const dir = path.join(build, 'wasm');
export const stories = path.join(build, 'stories.tfm');

let passed = 0, failed = 0, skipped = 0;
export function check(name, ok, detail = '') {
    if (ok) passed++;
    else { failed++; console.log(`FAILED: ${name}${detail === '' ? '' : `: ${detail}`}`); }
}
export function skip(name) { skipped++; console.log(`skipped ${name}`); }
export async function test(name, fn) {
    try { await fn(); } catch (e) { check(name, false, e?.stack ?? e); }
}
/* fn must throw an error whose message matches. */
export async function throws(name, pattern, fn) {
    try { await fn(); } catch (e) { return check(name, pattern.test(e.message), e.message); }
    check(name, false, 'no error');
}
export function finish() {
    console.log(`${passed} passed, ${failed} failed${skipped ? `, ${skipped} skipped` : ''}`);
    process.exit(failed > 0 ? 1 : 0);
}

export function native(program, args, input) {
    const options = { input, maxBuffer: 1 << 28, stdio: ['pipe', 'pipe', 'ignore'] };
    return execFileSync(path.join(build, program), args, options);
}
/* Greedy ids of the native scalar pass, as generate computes. */
export function nativeIds(model, ids, n, more = []) {
    const out = native('tfm-eval', [model, '--ids', ids.join(','), '--greedy', n, '--fast', '--isa', 'scalar', '-t', '1', '-c', '256', ...more]);
    return out.toString().trim().split(',').map(Number);
}
export function nativeTokens(model, text) {
    return native('tfm-tokenize', [model], text).toString().trim().split(/\s+/).map(Number);
}

/* The ids of a conversation, as the native program gives them, and the answer of generate --chat to one message. */
export function nativeChatIds(model, turns) {
    const messages = JSON.stringify(turns.map(({ role, text }) => ({ role, content: text })));
    return native('tfm-tokenize', [model, '--chat'], messages).toString().trim().split(/\s+/).map(Number);
}
export function nativeAnswer(model, message, n, more = []) {
    return native('generate', [model, '--chat', '-p', message, '-n', n, '--temp', '0', '--isa', 'scalar', '-t', '1', '-c', '512', ...more]).toString();
}
/* The story model with a chat template in its directory, converted. */
export function chattyModel(name, template) {
    const from = path.join(dir, name), model = `${from}.tfm`;
    fs.cpSync('examples/models/stories', from, { recursive: true });
    fs.writeFileSync(path.join(from, 'chat_template.jinja'), template);
    native('tfm-convert', [from, model]);
    return model;
}
export const CHAT_TEMPLATE = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% if m.role == 'assistant' %}" +
    "{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/* SmolLM2-135M as a GGUF, where `make real` put it (TFM_MODELS) or TFM_SMOLLM2 says; null if there is none. */
export function smollm2() {
    if (process.env.TFM_SMOLLM2) return process.env.TFM_SMOLLM2;
    for (const folder of [process.env.TFM_MODELS, path.join(build, 'real')]) {
        if (!folder || !fs.existsSync(folder)) continue;
        const found = fs.readdirSync(folder).find(f => /SmolLM2-135M.*\.gguf$/.test(f));
        if (found) return path.join(folder, found);
    }
    return null;
}

export async function collect(pieces) {
    let text = '';
    for await (const piece of pieces) text += piece;
    return text;
}
export async function greedy(session, prompt, tokens, more = {}) {
    const ids = [];
    const text = await collect(session.generate(prompt, { tokens, temp: 0, ignoreEnd: true, onToken: id => ids.push(id), ...more }));
    return { ids, text };
}
