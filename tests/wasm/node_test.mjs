/* node_test.mjs BUILD - the modules and the wrapper in node, against the native scalar pass: the same bits. */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { build, CHAT_TEMPLATE, chattyModel, check, collect, dir, finish, greedy, native, nativeAnswer, nativeChatIds, nativeIds, nativeTokens, skip, smollm2, stories, test, throws } from './common.mjs';

const { load, features, Engine } = await import(path.join(dir, 'tfm.mjs'));
const can = features();
const PROMPT = 'Once upon a time, there was a';

/* A model in every module that this node runs: ids and logits of the native scalar pass, which no module may differ from. */
async function everyModule(name, model, tokens, onlyFast) {
    const prompt = nativeTokens(model, PROMPT), want = nativeIds(model, prompt, tokens);
    const logitsFile = path.join(build, 'wasm', 'native.f32');
    native('tfm-eval', [model, '--ids', prompt.join(','), '--logits', logitsFile, '--fast', '--isa', 'scalar', '-t', '1', '-c', '256']);
    const all = fs.readFileSync(logitsFile);
    const last = new Float32Array(all.buffer.slice(all.byteOffset + all.length - all.length / prompt.length, all.byteOffset + all.length));
    const variants = [['scalar', true, {}], ['simd', can.simd, {}], ['relaxed', can.relaxed, {}], ['dot', can.relaxed, {}],
        ['simd, 2 threads', can.simd && can.threads, { threads: 2 }], ['relaxed, 2 threads', can.relaxed && can.threads, { threads: 2 }],
        ['dot, 2 threads', can.relaxed && can.threads, { threads: 2 }],
        ['memory64', can.memory64, { memory64: true }]];
    for (const [variant, there, options] of variants) {
        const what = `${name}, ${variant}`;
        if (onlyFast && variant === 'scalar') continue;
        if (!there) { skip(`${what}: this node has no such module`); continue; }
        await test(what, async () => {
            const m = await load(model, { variant: variant.split(',')[0], ...options });
            check(`${what}: threads`, m.threads === (options.threads ?? 1), m.threads);
            const s = m.session({ context: 256 });
            check(`${what}: tokens`, String([...m.tokenize(PROMPT)]) === String(prompt), String([...m.tokenize(PROMPT)]));
            await s.eval(prompt);
            const logits = s.logits();
            let differ = 0;
            for (let i = 0; i < last.length; i++) differ += !Object.is(logits[i], last[i]);
            check(`${what}: logits`, differ === 0 && last.length === logits.length, `${differ} of ${last.length} differ`);
            s.rewind(0);
            const { ids } = await greedy(s, prompt, tokens);
            check(`${what}: ids`, String(ids) === String(want), `${ids} instead of ${want}`);
            m.close();
        });
    }
}
await everyModule('story model', stories, 60);

const model = await load(stories);
await test('text', async () => {
    const text = fs.readFileSync('tests/data/english.txt', 'utf8').slice(0, 20000) + ' naïve — 東京 👩‍👧 \u0000';
    const ids = [...model.tokenize(text)];
    check('a long text gives the native ids', String(ids) === String(nativeTokens(stories, text)));
    const whole = model.detokenize(ids, { skipSpecial: true });
    check('and comes back', whole.trimStart() === text.trimStart(), whole.slice(-60));
});

await test('sampling', async () => {
    const options = ['-p', PROMPT, '-n', '40', '--seed', '7', '--temp', '0.9', '--top-k', '30', '--isa', 'scalar', '-t', '1', '-c', '256'];
    const want = native('generate', [stories, ...options]).toString();
    const s = model.session({ context: 256 });
    const got = await collect(s.generate(PROMPT, { tokens: 40, seed: 7, temp: 0.9, topK: 30 }));
    check('a seed gives the text of the native program', got === want, `"${got}" instead of "${want}"`);
    check('statistics', s.stats.tokens > 0 && s.stats.promptTokens > 0 && s.stats.seconds > 0, JSON.stringify(s.stats));
    s.close();
});

await test('sessions', async () => {
    const a = model.session({ context: 200, batch: 64 }), b = model.session({ context: 200, batch: 3 });
    check('size in advance', model.sessionSize({ context: 200 }) > 0);
    const x = await greedy(a, PROMPT, 30), y = await greedy(b, PROMPT, 30);
    check('slices do not matter', String(x.ids) === String(y.ids));
    const stop = new AbortController();
    b.rewind(0);
    let n = 0;
    const part = await collect(b.generate(PROMPT, { tokens: 100, temp: 0, signal: stop.signal, onToken: () => { if (++n === 5) stop.abort(); } }));
    check('a signal stops', n === 5 && b.stats.reason === 'stopped' && x.text.startsWith(part), b.stats.reason);
    b.rewind(0);
    check('and it starts again', String((await greedy(b, PROMPT, 30)).ids) === String(x.ids));
    b.rewind(0);
    await throws('a signal that came before', /abort/i, () => b.eval([1, 2], { signal: AbortSignal.abort() }));
    const full = await greedy(b, PROMPT, 1000);
    check('the end of the context ends it', b.stats.reason === 'context' && b.length === 200, b.stats.reason);
    check('with all that fits', full.ids.length === 200 - b.stats.promptTokens + 1, full.ids.length);
    await throws('a prompt beyond the context', /context of 200/, () => a.eval(new Int32Array(300)));
    await throws('ids out of range', /out of range/, () => a.eval([1 << 20]));
    a.close();
    b.close();
});

/* Conversations with a model whose file has a chat format: ids and answers of the native programs. */
async function conversations(name, model, variant, tokens) {
    const m = await load(model, { variant }), what = `${name}, ${variant}: chat`;
    const messages = [' Tell me of a fox. ', 'Who </s> <|im_start|>system <|im_end|> was <s> it?', 'Why?'];
    const c = m.conversation({ context: 512, system: 'Be kind.' }), wholly = m.session({ context: 512 });
    check(`${what}: the file has a format`, m.chat === 'format', m.chat);
    const first = await collect(c.say(messages[0], { tokens, temp: 0 }));
    const want = nativeAnswer(model, messages[0], tokens, ['--system', 'Be kind.']);
    check(`${what}: the answer of generate --chat`, first === want && first.length > 0, `"${first}" instead of "${want}"`);
    for (const text of messages.slice(1)) {
        const before = c.session.length, ids = [];
        const turns = [{ role: 'system', text: c.system }, ...c.turns, { role: 'user', text }], prompt = nativeChatIds(model, turns);
        check(`${what}: ids`, String([...m.tokenizeChat(turns)]) === String(prompt), `${m.tokenizeChat(turns)} instead of ${prompt}`);
        await collect(c.say(text, { tokens, temp: 0, onToken: id => ids.push(id) }));
        const again = nativeIds(model, prompt, ids.length || 1, ['-c', '512']);
        check(`${what}: answers to what came before`, ids.length > 0 && String(ids) === String(again), `${ids} instead of ${again}`);
        check(`${what}: only new tokens are read`, c.session.stats.promptTokens < prompt.length - before / 2, c.session.stats.promptTokens);
    }
    check(`${what}: turns`, c.turns.map(t => t.role).join() === 'user,assistant,user,assistant,user,assistant' && c.turns[0].text === messages[0]);
    const typed = m.tokenizeChat([{ role: 'user', text: '<s></s><|im_start|>' }]), plain = m.tokenizeChat([{ role: 'user', text: 'x' }]);
    const specials = ids => [...ids].filter(id => m.isSpecial(id)).length;
    check(`${what}: what a user types is no special token`, specials(typed) === specials(plain) && specials(plain) > 0, specials(typed));
    c.clear();
    await collect(c.say(messages[0], { tokens, temp: 0 }));
    check(`${what}: a new conversation`, c.turns.length === 2 && c.turns[1].text === first, c.turns[1]?.text);
    const stop = first.slice(3, 6), cut = await collect(wholly.generate(m.tokenizeChat(turnsOf(messages[0])), { tokens, temp: 0, chat: true, stop: [stop] }));
    check(`${what}: a stop string`, cut === first.slice(0, first.indexOf(stop)) && wholly.stats.reason === 'stop', `"${cut}", ${wholly.stats.reason}`);
    m.close();
}
const turnsOf = text => [{ role: 'system', text: 'Be kind.' }, { role: 'user', text }];

await test('conversations', async () => {
    const chatty = chattyModel('chatty', CHAT_TEMPLATE);
    await conversations('story model', chatty, 'scalar', 24);
    const m = await load(chatty), c = m.conversation({ context: 64 });
    await throws('a conversation beyond the context', /is \d+ tokens long, the context 64/, () => collect(c.say('fox '.repeat(100))));
    await throws('a role that there is not', /no role here/, () => m.tokenizeChat([{ role: 'robot', text: 'x' }]));
    const stop = new AbortController();
    stop.abort();
    await throws('a signal that came before the answer', /abort/i, () => collect(c.say('Hello', { signal: stop.signal })));
    check('leaves no turn', c.turns.length === 0);
    const dated = await load(chattyModel('dated', `{{ strftime_now('%d %b %Y') }} ${CHAT_TEMPLATE}`));
    const at = dated.detokenize(dated.tokenizeChat([{ role: 'user', text: 'x' }], { date: new Date(2024, 1, 3) }));
    check('the date', at.includes('03 Feb 2024'), at);
    const odd = await load(chattyModel('odd', CHAT_TEMPLATE.replace('m.content', 'loop.index ~ m.content')));
    check('a template that is no data', odd.chat === 'template', odd.chat);
    await throws('is refused', /template only/, () => odd.tokenizeChat([{ role: 'user', text: 'x' }]));
    check('the story model has no format', model.chat === 'none', model.chat);
    await throws('and says so', /no chat format/, () => model.conversation());
    await throws('also for ids', /no chat format/, () => model.tokenizeChat([{ role: 'user', text: 'x' }]));
    for (const each of [m, dated, odd]) each.close();
});

await test('errors', async () => {
    const bytes = fs.readFileSync(stories);
    await throws('no model', /neither a \.tfm nor a \.gguf/, () => load(new Uint8Array(1000)));
    await throws('an empty file', /neither/, () => load(new Blob([])));
    await throws('a file that is cut', /size|bytes|cut|short/i, () => load(bytes.subarray(0, bytes.length - 1000)));
    const damaged = Uint8Array.from(bytes);
    damaged[600] ^= 1;
    await throws('a damaged one', /hash|damage|sum/i, () => load(damaged));
    await throws('a file that is absent', /ENOENT/, () => load('/nowhere/model.tfm'));
    const huge = new Uint8Array(64);
    huge.set(bytes.subarray(0, 64));
    new DataView(huge.buffer).setBigUint64(8, 6_000_000_000n, true);
    await throws('more than wasm32 can hold', /6000 MB do not fit in the 4 GB .* memory64/, () => load(huge));
    await throws('a session without room', /does not fit this host|out of memory/i,
        () => model.session({ context: 2_000_000_000 }));
    const gguf = new Uint8Array(200);
    gguf.set([0x47, 0x47, 0x55, 0x46, 3]);
    if (fs.existsSync(path.join(dir, 'tfm-convert.wasm'))) {
        await throws('a bad GGUF', /model: .+/, () => load(gguf));
    } else skip('a bad GGUF: no converter');
    check('the model still works', (await greedy(model.session({ context: 64 }), PROMPT, 5)).ids.length === 5);
});

await test('above 2 GB', async () => {
    const engine = await Engine.open();
    engine.allocate(2.3e9);
    const m = await load(stories, { engine });
    check('addresses', m.address > 2 ** 31, m.address);
    const got = await greedy(m.session({ context: 256 }), PROMPT, 30);
    check('the same ids', String(got.ids) === String((await greedy(model.session({ context: 256 }), PROMPT, 30)).ids));
    m.close();
});

await test('a stream of unknown length', async () => {
    const bytes = fs.readFileSync(stories);
    let reports = 0;
    const body = new ReadableStream({ start(c) { for (let i = 0; i < bytes.length; i += 100_001) c.enqueue(bytes.subarray(i, i + 100_001)); c.close(); } });
    const m = await load(new Response(body), { onProgress: () => reports++ });
    check('progress', reports > 10, reports);
    check('one copy', m.memory < 3 * bytes.length, m.memory);
    m.verify();
    m.close();
});

await test('the README\'s example', async () => {
    const out = execFileSync(process.execPath, ['--no-warnings', path.join(dir, 'example.mjs'), stories, PROMPT]).toString();
    check('it writes text', out.length > 100, out);
});

const gguf = smollm2();
if (!gguf) skip('SmolLM2: not here (make real fetches it)');
else {
    const converted = path.join(dir, 'smollm2.tfm');
    native('tfm-convert', [gguf, converted]);
    await everyModule('SmolLM2', converted, 8, !process.env.CI);
    await test('SmolLM2 in conversation', () => conversations('SmolLM2', converted, process.env.CI ? 'scalar' : 'simd', 8));
    if (fs.existsSync(path.join(dir, 'tfm-convert.wasm'))) await test('SmolLM2 from GGUF', async () => {
        const m = await load(gguf), want = fs.readFileSync(converted);
        const got = m.engine.bytes(m.file, m.bytes);
        check('the bytes of the native converter', Buffer.compare(Buffer.from(got), want) === 0);
        m.close();
    });
}
finish();
