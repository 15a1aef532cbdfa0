/* browser_test.mjs BUILD - the page in headless Chromium: what a person does, and what it looks like (BUILD/wasm/shots).
 * Needs playwright-core, from BUILD/npm or where node finds it, and a Chromium (CHROMIUM, or /usr/bin/chromium). */
import fs from 'node:fs';
import path from 'node:path';
import { build, CHAT_TEMPLATE, chattyModel, check, dir, finish, native, nativeAnswer, skip, smollm2, stories, test } from './common.mjs';
import { launch } from './browser.mjs';
import { serve } from './serve.mjs';

const browser = await launch();
if (!browser) { skip('the page: no Chromium or no playwright-core'); finish(); }

const shots = path.join(dir, 'shots');
fs.mkdirSync(shots, { recursive: true });
const isolated = await serve(dir, { 'stories.tfm': stories }, true), plain = await serve(dir, { 'stories.tfm': stories }, false);
const PROMPT = 'Once upon a time, there was a little fox who';
const told = (model, prompt, n) => native('generate', [model, '-p', prompt, '-n', String(n), '--temp', '0', '--isa', 'scalar', '-t', '1', '-c', '512']).toString();

async function visit(url, options = {}) {
    const page = await browser.newPage({ viewport: { width: 1000, height: 900 }, ...options });
    page.setDefaultTimeout(60000);
    page.on('pageerror', e => check('no error in the page', false, e.message));
    await page.goto(url);
    return page;
}
const shot = (page, name) => page.screenshot({ path: path.join(shots, `${name}.png`), fullPage: true });
const status = page => page.locator('#model-status').textContent();
async function story(page) {
    await page.getByRole('button', { name: 'Try the story model' }).click();
    await loaded(page);
}
async function settings(page, values) {
    for (const group of await page.locator('details').all()) await group.evaluate(e => { e.open = true; });
    for (const [id, value] of Object.entries(values)) {
        if (id === 'variant') await page.locator('#variant').selectOption(value);
        else await page.locator(`#${id}`).fill(String(value));
    }
}
async function write(page, prompt) {
    await page.getByLabel('Your text').fill(prompt);
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.locator('#stop:disabled').waitFor();
    return (await page.locator('#output .made').allTextContents()).join('');
}

async function say(page, text) {
    await page.getByLabel('Your message').fill(text);
    await page.keyboard.press('Enter');
    await page.locator('#stop:disabled').waitFor();
    return (await page.locator('.turn.model p').last().textContent());
}
const pick = (page, file) => page.locator('#pick').setInputFiles(file);
const loaded = page => page.locator('#model-status', { hasText: 'module' }).waitFor();

/* Kernels of the modules that a node may be too old for. What they need of WASI: no arguments, a place for their lines. */
await test('kernels', async () => {
    const page = await visit(plain.url);
    for (const name of ['relaxed', 'dot']) {
        const lines = await page.evaluate(async file => {
            const module = await WebAssembly.compileStreaming(fetch(file));
            const wasi = Object.fromEntries(WebAssembly.Module.imports(module).map(i => [i.name, () => 8])); // EBADF
            let memory, text = '';
            const view = () => new DataView(memory.buffer);
            wasi.args_get = () => 0;
            wasi.args_sizes_get = (count, bytes) => { view().setUint32(count, 0, true); view().setUint32(bytes, 0, true); return 0; };
            wasi.fd_write = (file, pieces, n, written) => {
                let all = 0;
                for (let i = 0; i < n; i++) {
                    const at = view().getUint32(pieces + 8 * i, true), bytes = view().getUint32(pieces + 8 * i + 4, true);
                    text += new TextDecoder().decode(new Uint8Array(memory.buffer, at, bytes));
                    all += bytes;
                }
                view().setUint32(written, all, true);
                return 0;
            };
            wasi.proc_exit = () => { throw new Error('exit'); };
            const { exports } = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasi });
            memory = exports.memory;
            try { exports._start(); } catch (e) { if (e.message !== 'exit') text += e.message; }
            return text.split('\n');
        }, `kernels/${name}.wasm`);
        for (const line of lines.filter(l => l.startsWith('FAILED'))) check(`kernels, ${name}`, false, line);
        check(`kernels, ${name}`, lines.some(l => /^[1-9]\d* passed, 0 failed/.test(l)), lines.slice(-3).join(' '));
    }
    await page.close();
});

await test('the story model in every module', async () => {
    const page = await visit(isolated.url), want = told(stories, PROMPT, 60);
    await page.getByRole('button', { name: 'Try the story model' }).waitFor();
    await shot(page, 'start');
    for (const [variant, threads] of [['scalar', 1], ['simd', 1], ['relaxed', 2], ['dot', 2]]) {
        await settings(page, { variant, threads, tokens: 60, temp: 0 });
        await story(page);
        check(`${variant} is used`, (await status(page)).includes(`${variant} module, ${threads} thread`), await status(page));
        const got = await write(page, PROMPT);
        check(`${variant}: the native scalar text`, got === want, `"${got}" instead of "${want}"`);
    }
    check('tokens per second', /60 tokens · [\d.]+ tokens\/s/.test(await page.locator('#figures').textContent()));
    await shot(page, 'written');
    await page.close();
});

await test('stop and start again', async () => {
    const page = await visit(isolated.url);
    await settings(page, { variant: 'scalar', threads: 1, tokens: 400, temp: 0, repeat: 1.3 });
    await story(page);
    await page.getByLabel('Your text').fill(PROMPT);
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.locator('#output .made').first().waitFor();
    await shot(page, 'writing');
    await page.keyboard.press('Escape');
    await page.locator('#stop:disabled').waitFor();
    const part = (await page.locator('#output .made').allTextContents()).join('');
    check('stopped', (await page.locator('#figures').textContent()).includes('stopped'), await page.locator('#figures').textContent());
    const again = await write(page, PROMPT);
    check('the same text, and more', again.startsWith(part) && again.length > part.length, `"${part}" then "${again}"`);
    await page.close();
});

await test('conversation', async () => {
    const chatty = chattyModel('chatty-page', CHAT_TEMPLATE), page = await visit(isolated.url);
    const turns = () => page.locator('.turn p').allTextContents(), alert = page.getByRole('alert');
    await settings(page, { variant: 'scalar', threads: 1, tokens: 24, temp: 0, context: 512 });
    await pick(page, chatty);
    await loaded(page);
    check('a model with a chat format is there to talk with', await page.getByLabel('Answers in a conversation').isChecked());
    check('and the message is where to type', await page.evaluate(() => document.activeElement.id) === 'prompt');
    await page.locator('#system').fill('Be kind.');
    const hello = 'Tell me of a fox.', want = nativeAnswer(chatty, hello, 24, ['--system', 'Be kind.']);
    const got = await say(page, hello);
    check('the answer of generate --chat', got === want, `"${got}" instead of "${want}"`);
    await say(page, 'Who </s> was it?');
    check('two questions, two answers', (await turns()).length === 4 && (await turns())[2] === 'Who </s> was it?', await turns());
    check('only what is new is read', /prompt of [12]?\d at/.test(await page.locator('#figures').textContent()), await page.locator('#figures').textContent());
    await shot(page, 'chat');
    await page.getByLabel('Goes on with a text').check();
    check('a text beside it', await write(page, PROMPT) === told(stories, PROMPT, 24));
    await page.getByLabel('Answers in a conversation').check();
    check('the conversation is still there', (await turns()).length === 4);
    await say(page, 'fox '.repeat(600));
    await alert.filter({ hasText: 'context 512. Begin a new one' }).waitFor();
    check('a message that does not fit comes back', (await turns()).length === 4 && (await page.locator('#prompt').inputValue()).length > 2000);
    await shot(page, 'chat-full');
    await page.getByRole('button', { name: 'New conversation' }).click();
    check('a new conversation is empty', (await turns()).length === 0 && !(await alert.isVisible()));
    check('and has the same answer', await say(page, hello) === want);
    await settings(page, { tokens: 400, repeat: 1.3 });
    await page.getByLabel('Your message').fill('And then?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.locator('.turn.model .made').nth(1).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('#stop:disabled').waitFor();
    check('stopped', /stopped|ended/.test(await page.locator('#figures').textContent()), await page.locator('#figures').textContent());
    await settings(page, { tokens: 5 });
    await say(page, 'Go on.');
    check('and it goes on', (await turns()).length === 6, await turns());
    await story(page);
    check('without a format it says so', (await page.locator('#mode-hint').textContent()).includes('says nothing about conversations') &&
        await page.getByLabel('Answers in a conversation').isDisabled());
    await shot(page, 'no-chat');
    await pick(page, chattyModel('odd-page', CHAT_TEMPLATE.replace('m.content', 'loop.index ~ m.content')));
    await page.locator('#mode-hint', { hasText: 'template that needs a native program' }).waitFor();
    await page.close();
});

await test('errors are shown', async () => {
    const page = await visit(isolated.url), alert = page.getByRole('alert');
    const give = (name, buffer) => pick(page, { name, mimeType: 'application/octet-stream', buffer });
    await give('holiday.tfm', Buffer.from('not a model at all, but some text'));
    await alert.filter({ hasText: 'holiday.tfm: neither a .tfm nor a .gguf file' }).waitFor();
    await shot(page, 'error');
    const head = Buffer.from(fs.readFileSync(stories).subarray(0, 64));
    head.writeBigUInt64LE(6_000_000_000n, 8);
    await give('huge.tfm', head);
    await alert.filter({ hasText: '6000 MB do not fit' }).waitFor();
    const damaged = Buffer.from(fs.readFileSync(stories));
    damaged[500] ^= 255;
    await give('damaged.tfm', damaged);
    await alert.filter({ hasText: /hash|damage|match|sum/i }).waitFor();
    const gguf = Buffer.alloc(100);
    gguf.write('GGUF\x03');
    await give('broken.gguf', gguf);
    await alert.filter({ hasText: /broken\.gguf: / }).waitFor();
    await settings(page, { context: 100000, threads: 1 });
    await story(page);
    check('and a good model after them', !(await alert.isVisible()));
    await page.close();
});

await test('without COOP and COEP', async () => {
    const page = await visit(plain.url);
    check('threads are off', await page.locator('#threads').isDisabled());
    await settings(page, { tokens: 30, temp: 0 });
    await story(page);
    check('it runs all the same', await write(page, PROMPT) === told(stories, PROMPT, 30));
    await page.close();
});

await test('keyboard, names, contrast, phone', async () => {
    const page = await visit(isolated.url);
    await page.keyboard.press('Tab');
    check('the first stop is the file', await page.evaluate(() => document.activeElement.id) === 'pick');
    await shot(page, 'focus');
    for (const scheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme: scheme });
        await page.evaluate(() => { const e = document.getElementById('error'); e.hidden = false; e.textContent = 'x'; });
        for (const [what, ratio] of await page.evaluate(contrasts)) check(`${scheme}: contrast of ${what}`, ratio >= 4.5, ratio.toFixed(2));
    }
    const unnamed = await page.evaluate(() => [...document.querySelectorAll('input, textarea, select')]
        .filter(e => !e.labels?.length).map(e => e.id));
    check('every field has a label', unnamed.length === 0, unnamed);
    await page.close();
    const phone = await visit(isolated.url, { viewport: { width: 360, height: 740 }, hasTouch: true, colorScheme: 'dark' });
    await settings(phone, { tokens: 40, temp: 0 });
    await story(phone);
    await write(phone, PROMPT);
    check('nothing is wider than a phone', await phone.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth));
    const small = await phone.evaluate(() => [...document.querySelectorAll('button:not([hidden]), .button, input[type=number], select')]
        .filter(e => e.offsetHeight && e.offsetHeight < 40).map(e => e.id || e.textContent));
    check('all can be hit with a finger', small.length === 0, small);
    await shot(phone, 'phone');
    await pick(phone, chattyModel('chatty-phone', CHAT_TEMPLATE));
    await phone.getByLabel('Your message').waitFor();
    for (const text of ['Tell me of a fox.', 'And of its friend, who is small and likes to play in the garden?']) {
        await phone.getByLabel('Your message').fill(text);
        await phone.getByRole('button', { name: 'Send' }).click();
        await phone.locator('#stop:disabled').waitFor();
    }
    check('a conversation is not wider either', await phone.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth));
    for (const scheme of ['light', 'dark']) {
        await phone.emulateMedia({ colorScheme: scheme });
        for (const [what, ratio] of await phone.evaluate(contrasts)) check(`${scheme} conversation: contrast of ${what}`, ratio >= 4.5, ratio.toFixed(2));
    }
    await shot(phone, 'chat-phone');
    await phone.close();
});

/* [name, contrast ratio] of texts against what is behind them; runs in the page. */
function contrasts() {
    const parts = color => color.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = e => {
        for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; }
        return [255, 255, 255];
    };
    return ['h1 span', '.hint', '#pick-label', '#go', '#stop', '#error', '#output', 'header p', 'summary', 'textarea',
        'fieldset label', 'fieldset label:has(:disabled)', '.turn.user p', '.turn.user b', '.turn.model p', '.turn.model .made'].flatMap(s => {
        const e = document.querySelector(s);
        if (!e) return [];
        const a = light(parts(getComputedStyle(e).color)), b = light(behind(e));
        return [[s, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]];
    });
}

const gguf = smollm2();
if (!gguf || !fs.existsSync(path.join(dir, 'tfm-convert.wasm'))) skip('SmolLM2 in the page: no model or no converter');
else await test('SmolLM2 from GGUF', async () => {
    const converted = path.join(dir, 'smollm2.tfm');
    native('tfm-convert', [gguf, converted]);
    const page = await visit(isolated.url);
    page.setDefaultTimeout(180000);
    await settings(page, { tokens: 12, temp: 0, context: 512, threads: 1 });
    await pick(page, gguf);
    await loaded(page);
    const said = await say(page, 'What is the capital of France?'), answer = nativeAnswer(converted, 'What is the capital of France?', 12);
    check('the answer of generate --chat', said === answer, `"${said}" instead of "${answer}"`);
    await shot(page, 'gguf-chat');
    await page.getByLabel('Goes on with a text').check();
    const got = await write(page, 'The capital of France is'), want = told(converted, 'The capital of France is', 12);
    check('the native scalar text', got === want, `"${got}" instead of "${want}"`);
    await shot(page, 'gguf');
    await page.close();
});

await browser.close();
isolated.close();
plain.close();
finish();
