/* tfm.mjs - language models in the browser and in Node, by tfm.h compiled to WebAssembly.
 *
 *     import { load } from './tfm.mjs';
 *     const model = await load('stories.tfm', { onProgress: (done, total) => console.log(done, total) });
 *     const session = model.session({ context: 512 });
 *     for await (const text of session.generate('Once upon a time', { tokens: 100 })) process.stdout.write(text);
 *     model.close();
 *
 * The types stand in tfm.d.mts. A model is streamed into the module's memory once and used there. Everything runs in the
 * thread that calls; in a page, that should be a Worker (worker.mjs is one). Threads are an option and need
 * SharedArrayBuffer, which browsers give to pages that are cross-origin isolated.
 */

const IN_NODE = typeof process === 'object' && !!process.versions?.node;
const WASM32_LIMIT = 65535 * 65536;
const GROW = 1 << 24; // a model of unknown size gets room in steps

export class TfmError extends Error {
    constructor(message, code = 0) {
        super(message);
        this.name = 'TfmError';
        this.code = code; // TFM_ERR_ of tfm.h, or 0
    }
}
export const ERR_MEMORY = -5, ERR_CONTEXT = -6;

/* ---- WHAT THE ENGINE CAN --------------------------------------------------------------------------------------- */

/* A module of one function f: () -> i32, the first lane of what `body` leaves. */
function probe(...body) {
    const code = [0, ...body, 0xfd, 0x1b, 0, 0x0b]; // i32x4.extract_lane 0, end
    return new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x60, 0, 1, 0x7f, 3, 2, 1, 0,
        7, 5, 1, 1, 0x66, 0, 0, 10, code.length + 2, 1, code.length, ...code]);
}
const splat = (...number) => [0x41, ...number, 0xfd, 0x0f]; // i32.const number, i8x16.splat
/* i32x4.relaxed_dot_i8x16_i7x16_add_s of 127 and 255, four times each. With a second operand above 127 it may differ: where
   the processor has no such product it is made of pairs that saturate, 2 * 32767. */
const DOT = probe(...splat(0xff, 0), ...splat(0x7f), ...splat(0), 0xfd, 0x93, 2), DOT_OF_PAIRS = 65534;

/** What this engine runs: { simd, relaxed, dot, threads, memory64 }; dot: relaxed, and four products of bytes are one
 * instruction of the processor. */
export function features() {
    const simd = WebAssembly.validate(probe(...splat(0)));
    const relaxed = simd && WebAssembly.validate(DOT);
    const dot = relaxed && new WebAssembly.Instance(new WebAssembly.Module(DOT)).exports.f() !== DOT_OF_PAIRS;
    const threads = typeof SharedArrayBuffer === 'function' && (IN_NODE || globalThis.crossOriginIsolated === true);
    const memory64 = WebAssembly.validate(new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 5, 3, 1, 4, 1]));
    return { simd, relaxed, dot, threads, memory64 };
}

/* The module's file for what is wanted. */
function variantFile({ variant = 'auto', threads = 1, memory64 = false }) {
    const can = features();
    if (variant === 'auto') variant = can.dot ? 'dot' : can.relaxed ? 'relaxed' : can.simd ? 'simd' : 'scalar';
    if (memory64) {
        if (!can.memory64) throw new TfmError('this engine has no 64-bit memory');
        return { file: 'tfm-memory64.wasm', variant: 'memory64', threads: 1 };
    }
    if (!can.threads || variant === 'scalar') threads = 1;
    return { file: `tfm-${variant}${threads > 1 ? '-threads' : ''}.wasm`, variant, threads };
}

async function bytesOf(url) {
    if (IN_NODE && url.protocol === 'file:') return (await import('node:fs')).readFileSync(url);
    const answer = await fetch(url);
    if (!answer.ok) throw new TfmError(`${url}: ${answer.status} ${answer.statusText}`);
    return answer.arrayBuffer();
}

const compiled = new Map();
function compile(url) {
    if (!compiled.has(url.href)) {
        const module = bytesOf(url).then(bytes => WebAssembly.compile(bytes));
        module.catch(() => compiled.delete(url.href));
        compiled.set(url.href, module);
    }
    return compiled.get(url.href);
}

/* ---- ONE INSTANCE: a module, its memory, its threads ------------------------------------------------------------ */

/** One instance of a module: memory and the functions of tfm_wasm.c. load() makes one of its own. */
export class Engine {
    static async open(options = {}) {
        const e = new Engine();
        const base = options.base ?? import.meta.url;
        Object.assign(e, variantFile(options));
        const module = await compile(new URL(e.file, base));
        let memory;
        if (e.threads > 1) {
            memory = shareMemory();
            if (!memory) return Engine.open({ ...options, threads: 1 });
        }
        const instance = await WebAssembly.instantiate(module, memory ? { env: { memory } } : {});
        e.call = instance.exports;
        e.memory = memory ?? instance.exports.memory;
        e.workers = [];
        if (memory) await e.startThreads(module, new URL('thread.mjs', base));
        return e;
    }

    async startThreads(module, url) {
        const Thread = IN_NODE ? (await import('node:worker_threads')).Worker : Worker;
        const STACK = 1 << 18;
        await Promise.all(Array.from({ length: this.threads - 1 }, () => new Promise((resolve, reject) => {
            const start = { module, memory: this.memory, stack: this.allocate(STACK) + STACK };
            const worker = IN_NODE ? new Thread(url, { workerData: start }) : new Thread(url, { type: 'module' });
            this.workers.push(worker);
            if (IN_NODE) {
                worker.once('message', () => { worker.unref(); resolve(); }); // a program may end while threads wait
                worker.once('error', reject);
            } else {
                worker.onmessage = resolve;
                worker.onerror = e => reject(new TfmError(`thread: ${e.message}`));
                worker.postMessage(start);
            }
        })));
    }

    close() {
        for (const worker of this.workers) worker.terminate();
        this.workers = [];
        this.call = this.memory = null;
    }

    /* Views are made anew each time: memory that grows leaves old ones without a buffer. */
    bytes(at, n) { return new Uint8Array(this.memory.buffer, at, n); }
    ints(at, n) { return new Int32Array(this.memory.buffer, at, n); }
    floats(at, n) { return new Float32Array(this.memory.buffer, at, n); }

    /* Zero-terminated. */
    string(at) {
        const all = new Uint8Array(this.memory.buffer);
        return new TextDecoder().decode(all.slice(at, all.indexOf(0, at)));
    }
    message() { return this.string(this.call.last_error()); }
    fail(code = 0) { throw new TfmError(this.message(), code); }
    checked(address, code = 0) { return address || this.fail(code); }
    allocate(n) { return this.call.allocate(n) || this.fail(ERR_MEMORY); }

    /* fn(address of n bytes), which are released afterwards */
    with(n, fn) {
        const p = this.allocate(n);
        try { return fn(p); } finally { this.call.release(p); }
    }
}

/* As much as there may be: some systems refuse to reserve 4 GB. */
function shareMemory() {
    for (const maximum of [65536, 32768, 16384, 8192]) {
        try { return new WebAssembly.Memory({ initial: 64, maximum, shared: true }); } catch { /* less, then */ }
    }
    return null;
}

/* ---- BYTES FROM ANYWHERE ---------------------------------------------------------------------------------------- */

/* A source is { name, size (NaN: unknown), stream() -> async iterable of Uint8Array, readAt(offset, n) or null }. */
async function sourceOf(from) {
    if (from instanceof ArrayBuffer || ArrayBuffer.isView(from)) {
        const all = from instanceof ArrayBuffer ? new Uint8Array(from)
            : new Uint8Array(from.buffer, from.byteOffset, from.byteLength);
        return memorySource('model', all);
    }
    if (typeof Blob === 'function' && from instanceof Blob) return blobSource(from.name ?? 'model', from);
    if (typeof Response === 'function' && from instanceof Response) return responseSource(from, from.url || 'model');
    if (IN_NODE && (from.protocol === 'file:' || (typeof from === 'string' && !/^https?:/.test(from)))) return fileSource(from);
    return responseSource(await fetch(from), String(from));
}

function memorySource(name, all) {
    return { name, size: all.length, readAt: (offset, n) => all.subarray(offset, offset + n),
        async *stream() { for (let i = 0; i < all.length; i += GROW) yield all.subarray(i, i + GROW); } };
}

async function* chunksOf(stream) {
    const reader = stream.getReader();
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done) return;
            yield value;
        }
    } finally { reader.cancel().catch(() => {}); }
}

function blobSource(name, blob) {
    const reader = typeof FileReaderSync === 'function' ? new FileReaderSync() : null; // in Workers only
    return { name, size: blob.size, blob, stream: () => chunksOf(blob.stream()),
        readAt: reader && ((offset, n) => new Uint8Array(reader.readAsArrayBuffer(blob.slice(offset, offset + n)))) };
}

function responseSource(response, name) {
    if (!response.ok) throw new TfmError(`${name}: ${response.status} ${response.statusText}`);
    const coded = response.headers.get('content-encoding'); // then the length is that of something else
    const length = response.headers.get('content-length');
    return { name, size: coded || length === null ? NaN : Number(length), readAt: null,
        stream: () => chunksOf(response.body) };
}

async function fileSource(path) {
    const fs = await import('node:fs');
    const file = fs.openSync(path, 'r');
    const buffer = new Uint8Array(1 << 20);
    const readAt = (offset, n) => {
        const into = n <= buffer.length ? buffer : new Uint8Array(n);
        return into.subarray(0, fs.readSync(file, into, 0, n, offset));
    };
    return { name: String(path), size: fs.fstatSync(file).size, readAt, close: () => fs.closeSync(file),
        async *stream() {
            for (let at = 0, piece; (piece = readAt(at, buffer.length)).length; at += piece.length) yield piece;
        } };
}

/* Everything of a stream, for a format that must be read at random. */
async function whole(pieces, report) {
    const parts = [];
    let done = 0;
    for await (const piece of pieces) {
        parts.push(piece.slice());
        report(done += piece.length);
    }
    return new Blob(parts);
}

/* ---- LOADING ---------------------------------------------------------------------------------------------------- */

const isGguf = head => head.length >= 4 && head[0] === 0x47 && head[1] === 0x47 && head[2] === 0x55 && head[3] === 0x46;
const isTfm = head => head.length >= 4 && head[0] === 0x74 && head[1] === 0x66 && head[2] === 0x6d && head[3] === 0x1a;

const inMegabytes = n => `${(n / 1e6).toFixed(n < 1e8 ? 1 : 0)} MB`;

/* Room in the engine's memory that grows in place. */
class Room {
    constructor(engine, name) { Object.assign(this, { engine, name, at: 0, room: 0 }); }
    reserve(n) {
        const limit = this.engine.variant === 'memory64' ? Number.MAX_SAFE_INTEGER : WASM32_LIMIT;
        const explain = `${this.name}: ${inMegabytes(n)} do not fit`;
        if (n > limit) throw new TfmError(`${explain} in the 4 GB of 32-bit WebAssembly; there is a memory64 build`, ERR_MEMORY);
        const { call } = this.engine;
        const at = this.at ? call.enlarge(this.at, n) : call.allocate(n);
        if (!at) throw new TfmError(`${explain} in the memory that this browser or system gives`, ERR_MEMORY);
        this.at = at;
        this.room = n;
    }
    write(offset, piece) {
        if (offset + piece.length > this.room) this.reserve(offset + piece.length + GROW);
        this.engine.bytes(this.at + offset, piece.length).set(piece);
    }
}

/* Streams a .tfm file into the engine; its size stands in its head. */
async function receive(engine, source, pieces, options) {
    const room = new Room(engine, source.name);
    let done = 0, total = source.size;
    for await (const piece of pieces) {
        options.signal?.throwIfAborted();
        if (!done && piece.length >= 16) total = Number(new DataView(piece.buffer, piece.byteOffset).getBigUint64(8, true));
        if (!room.room && total > 0) room.reserve(total);
        room.write(done, piece);
        done += piece.length;
        options.onProgress?.(done, total || done, 'loading');
    }
    return { file: room.at, bytes: done };
}

/* Converts a GGUF file into the engine: the converter reads where it likes and writes there. */
async function convert(engine, source, options) {
    if (!source.readAt) throw new TfmError(`${source.name}: a .gguf can be converted in a Worker or in Node only`);
    const module = await compile(new URL('tfm-convert.wasm', options.base ?? import.meta.url));
    const room = new Room(engine, source.name), warnings = [];
    let end = 0, memory, thrown = null;
    const text = (at, n) => new TextDecoder().decode(new Uint8Array(memory.buffer, at, n));
    const guard = fn => (...args) => { try { return fn(...args); } catch (e) { thrown = e; return -1; } };
    const env = {
        read_at: guard((offset, at, n) => {
            const piece = source.readAt(offset, n);
            new Uint8Array(memory.buffer, at, n).set(piece);
            return piece.length === n ? 0 : 1;
        }),
        write_at: guard((offset, at, n) => {
            room.write(offset, new Uint8Array(memory.buffer, at, n));
            end = Math.max(end, offset + n);
            return 0;
        }),
        warn: (at, n) => { warnings.push(text(at, n)); },
        progress: (done, total) => { options.onProgress?.(done, total, 'converting'); },
    };
    const nothing = Object.fromEntries(WebAssembly.Module.imports(module).map(i => [i.name, () => 8])); // no files: EBADF
    const { exports } = await WebAssembly.instantiate(module, { env, wasi_snapshot_preview1: nothing });
    memory = exports.memory;
    const name = new TextEncoder().encode(source.name.split(/[\\/]/).pop());
    const at = exports.allocate(name.length + 1);
    new Uint8Array(memory.buffer, at, name.length + 1).set([...name, 0]);
    room.reserve(source.size + GROW);
    const code = exports.convert(source.size, at);
    if (thrown) throw thrown;
    if (code) {
        const bytes = new Uint8Array(memory.buffer, exports.last_error(), 252);
        throw new TfmError(new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))), code);
    }
    return { file: room.at, bytes: end, warnings };
}

/* The first bytes of a stream, and the stream with them in front again. */
async function peek(stream, n) {
    const iterator = stream[Symbol.asyncIterator](), held = [];
    let have = 0;
    while (have < n) {
        const { done, value } = await iterator.next();
        if (done) break;
        held.push(value.slice());
        have += value.length;
    }
    const head = new Uint8Array(have);
    let at = 0;
    for (const piece of held) { head.set(piece, at); at += piece.length; }
    return { head, async *rest() {
        yield head;
        for (;;) {
            const { done, value } = await iterator.next();
            if (done) return;
            yield value;
        }
    } };
}

/** Loads a model: see tfm.d.mts. */
export async function load(from, options = {}) {
    const source = await sourceOf(from);
    const engine = options.engine ?? await Engine.open(options);
    try {
        const { head, rest } = await peek(source.stream(), 64);
        let loaded;
        if (isTfm(head)) loaded = await receive(engine, source, rest(), options);
        else if (isGguf(head)) {
            const report = done => { options.signal?.throwIfAborted(); options.onProgress?.(done, source.size || done, 'loading'); };
            const random = source.readAt || source.blob ? source : blobSource(source.name, await whole(rest(), report));
            loaded = await convert(engine, random, options);
        } else throw new TfmError(`${source.name}: neither a .tfm nor a .gguf file`);
        const address = engine.checked(engine.call.model_open(loaded.file, loaded.bytes));
        return new Model(engine, address, loaded);
    } catch (e) {
        engine.close();
        if (e instanceof WebAssembly.RuntimeError) throw new TfmError(`the module stopped: ${e.message}`);
        throw e;
    } finally { source.close?.(); }
}

/* ---- MODEL ------------------------------------------------------------------------------------------------------ */

const ASK = { context: 0, vocab: 1, layers: 2, width: 3, bos: 4, text: 5, chat: 6 };
const CHAT = ['none', 'template', 'format'], ROLES = { system: 1, user: 2, assistant: 3 };
const KV = { default: 0, f32: 1, f16: 2, bf16: 3, q8_0: 4 }, ACT = { default: 0, f32: 1, q8: 2 };
const ENCODE_NO_SPECIAL = 1, ENCODE_PARSE_SPECIAL = 2, DECODE_SKIP_SPECIAL = 1, DECODE_CONTINUATION = 2;
const TOKEN_SPECIAL = 1;

export class Model {
    constructor(engine, address, { file, bytes, warnings = [] }) {
        Object.assign(this, { engine, address, file, bytes, warnings, variant: engine.variant, threads: engine.threads });
        this.info = Object.fromEntries(Object.entries(ASK).map(([k, what]) => [k, engine.call.model_ask(address, what)]));
        this.chat = CHAT[this.info.chat];
    }

    /** Bytes a session will take. */
    sessionSize(options = {}) { return this.engine.checked(this.engine.call.session_size(...this.setup(options))); }
    session(options = {}) { return new Session(this, this.setup(options)); }
    /** A conversation in a session of its own. */
    conversation(options = {}) { return new Conversation(this.session(options), options); }

    setup({ context = Math.min(this.info.context, 4096), batch = Math.min(64, context), kv = 'default', act = 'default' }) {
        return [this.address, context, batch, KV[kv] ?? -1, ACT[act] ?? -1, 0, this.threads];
    }

    /** Text to ids. By default what the model wants around every text (begin of sequence ...) is added. */
    tokenize(text, { special = true, parseSpecial = false } = {}) {
        const { engine, address } = this, utf8 = new TextEncoder().encode(text);
        if (!this.info.text) throw new TfmError('the model has no tokenizer');
        const flags = (special ? 0 : ENCODE_NO_SPECIAL) | (parseSpecial ? ENCODE_PARSE_SPECIAL : 0);
        const most = engine.call.encode_max(address, utf8.length);
        if (most < 0) throw new TfmError('the text is too long');
        return engine.with(utf8.length + 4 * most + 64, at => {
            const ids = at + (utf8.length + 63 & ~63);
            engine.bytes(at, utf8.length).set(utf8);
            const n = engine.call.encode(address, at, utf8.length, flags, ids, most);
            return n < 0 ? engine.fail(n) : engine.ints(ids, n).slice();
        });
    }

    /** A conversation, [{ role, text }, ...], to ids, up to where the model answers. Special tokens are those of the model's
     * chat format; what stands in the texts never becomes one. */
    tokenizeChat(turns, { date = new Date() } = {}) {
        const { engine, address } = this, utf8 = turns.map(turn => new TextEncoder().encode(turn.text));
        const wanted = engine.call.chat_date_format(address);
        const today = wanted ? new TextEncoder().encode(formatDate(engine.string(wanted), date)) : [];
        const rows = turns.flatMap(({ role }, i) => [ROLES[role] ?? 0, utf8[i].length]);
        const n = utf8.reduce((sum, text) => sum + text.length, 0);
        return engine.with(4 * rows.length + n + today.length + 1, at => {
            let to = at + 4 * rows.length;
            engine.ints(at, rows.length).set(rows);
            for (const text of [...utf8, today, [0]]) { engine.bytes(to, text.length).set(text); to += text.length; }
            const date = wanted ? to - 1 - today.length : 0;
            const ids = engine.checked(engine.call.chat_encode(address, at, turns.length, at + 4 * rows.length, date));
            try { return engine.ints(ids + 4, engine.ints(ids, 1)[0]).slice(); } finally { engine.call.release(ids); }
        });
    }

    detokenize(ids, { skipSpecial = false } = {}) {
        const decoder = this.decoder(skipSpecial ? DECODE_SKIP_SPECIAL : 0);
        let text = '';
        for (const id of ids) text += decoder.text(id);
        text += decoder.text(-1);
        decoder.close();
        return text;
    }

    /** Pieces of text as ids come, whole characters only. */
    decoder(flags = DECODE_CONTINUATION) {
        const { engine } = this, at = engine.checked(engine.call.decoder_open(this.address, flags));
        const out = engine.call.decoder_text(at);
        return {
            text: id => new TextDecoder().decode(engine.bytes(out, engine.call.decode(at, id)).slice()),
            close: () => engine.call.release(at),
        };
    }

    /** Whether id ends a text, or in a conversation an answer. */
    isEnd(id, { chat = false } = {}) { return !!this.engine.call.model_is_end(this.address, id, chat); }
    isSpecial(id) { return !!(this.engine.call.token_flags(this.address, id) & TOKEN_SPECIAL); }
    /** The id of a token by its exact text, or -1. */
    find(piece) {
        const utf8 = new TextEncoder().encode(piece);
        return this.engine.with(utf8.length + 1, at => {
            this.engine.bytes(at, utf8.length).set(utf8);
            return this.engine.call.token_find(this.address, at, utf8.length);
        });
    }
    /** Checks the hashes of weights and tokenizer. */
    verify() { if (this.engine.call.model_verify(this.address)) this.engine.fail(); }
    get memory() { return this.engine.memory.buffer.byteLength; }
    close() { this.engine.close(); }
}

/* The parts of strftime that dates in chat formats are made of, in English as the models know them. */
function formatDate(format, date) {
    const two = n => String(n).padStart(2, '0'), name = (unit, width) => date.toLocaleString('en-US', { [unit]: width });
    const parts = { Y: date.getFullYear(), y: two(date.getFullYear() % 100), m: two(date.getMonth() + 1), d: two(date.getDate()),
        e: String(date.getDate()).padStart(2), b: name('month', 'short'), B: name('month', 'long'), a: name('weekday', 'short'),
        A: name('weekday', 'long'), H: two(date.getHours()), M: two(date.getMinutes()), S: two(date.getSeconds()), '%': '%' };
    return format.replace(/%(.)/g, (all, c) => parts[c] ?? all);
}

/* ---- SESSION ---------------------------------------------------------------------------------------------------- */

/* Lets messages and timers in. */
const breathe = typeof setImmediate === 'function' ? () => new Promise(setImmediate) : (() => {
    const { port1, port2 } = new MessageChannel(), waiting = [];
    port1.onmessage = () => waiting.shift()();
    return () => new Promise(resolve => { waiting.push(resolve); port2.postMessage(0); });
})();

/* Takes text as it comes and gives what may be shown: nothing from the first stop string on, nor what may become one. */
function stopper(stops) {
    let held = '';
    const shown = text => {
        if (shown.found) return '';
        held += text;
        let cut = held.length;
        for (let at = 0; at < cut; at++) {
            if (stops.some(s => held.startsWith(s, at))) { shown.found = true; cut = at; }
            else if (stops.some(s => s.startsWith(held.slice(at)))) cut = at;
        }
        const out = held.slice(0, cut);
        held = shown.found ? '' : held.slice(cut);
        return out;
    };
    shown.rest = () => held;
    return shown;
}

export class Session {
    constructor(model, setup) {
        const { engine } = model;
        Object.assign(this, { model, engine, context: setup[1], batch: setup[2], ids: [], stats: null });
        this.address = engine.checked(engine.call.session_open(...setup), ERR_MEMORY);
        this.history = engine.allocate(4 * this.context);
    }

    get length() { return this.engine.call.session_length(this.address); }

    /** Evaluates ids in slices, so that a signal can stop between them and a page's messages get through. */
    async eval(ids, { signal, onPrompt } = {}) {
        const { engine } = this;
        if (this.length + ids.length > this.context) {
            throw new TfmError(`${ids.length} more tokens do not fit a context of ${this.context}`, ERR_CONTEXT);
        }
        for (let i = 0; i < ids.length; i += this.batch) {
            if (ids.length > 1) await breathe();
            signal?.throwIfAborted();
            const n = Math.min(this.batch, ids.length - i), at = this.history + 4 * this.ids.length;
            for (let k = 0; k < n; k++) this.ids.push(ids[i + k]);
            engine.ints(at, n).set(this.ids.slice(-n));
            const code = engine.call.session_eval(this.address, at, n);
            if (code) { this.ids.length = this.length; engine.fail(code); }
            onPrompt?.(i + n, ids.length);
        }
    }

    /** Logits after the last id; a copy. */
    logits() {
        const at = this.engine.call.session_logits(this.address);
        return at ? this.engine.floats(at, this.model.info.vocab).slice() : null;
    }

    rewind(length) {
        if (this.engine.call.session_rewind(this.address, length)) this.engine.fail();
        this.ids.length = this.length;
    }

    /** Forgets what is not the beginning of ids; how many of these it still holds, at least the last one not. */
    keep(ids) {
        let same = 0;
        while (same < this.ids.length && same < ids.length - 1 && this.ids[same] === ids[same]) same++;
        try { this.rewind(same); } catch { this.rewind(same = 0); } // a window may no longer reach back
        return same;
    }

    sampler({ temp = 0.8, topK = 40, topP = 0.95, minP = 0.05, repeatPenalty = 1, presencePenalty = 0,
        frequencyPenalty = 0, repeatLastN = 0, seed = Math.floor(Math.random() * 2 ** 32) } = {}) {
        const { engine } = this, big = BigInt.asUintN(64, BigInt(seed));
        const at = engine.checked(engine.call.sampler_open(this.model.address, temp, topK, topP, minP, repeatPenalty,
            presencePenalty, frequencyPenalty, repeatLastN, Number(big & 0xffffffffn) | 0, Number(big >> 32n) | 0));
        return {
            next: () => {
                const id = engine.call.sample(at, this.address, this.history, this.ids.length);
                return id < 0 ? engine.fail(id) : id;
            },
            close: () => engine.call.release(at),
        };
    }

    /** Goes on after the session's text and `prompt` (text or ids); yields text as it is made. */
    async *generate(prompt, options = {}) {
        const { tokens = Infinity, signal, ignoreEnd = false, parseSpecial = false, chat = false, stop = [], onToken,
            onPrompt } = options;
        const { model } = this, sampler = this.sampler(options);
        const decoder = model.decoder(DECODE_SKIP_SPECIAL | (chat ? 0 : DECODE_CONTINUATION)), shown = stopper(stop);
        const stats = this.stats = { promptTokens: 0, promptSeconds: 0, tokens: 0, seconds: 0, reason: '' };
        try {
            const ids = typeof prompt === 'string' ? model.tokenize(prompt, { special: !this.length, parseSpecial }) : prompt;
            if (!ids.length && !this.length) throw new TfmError('the prompt is empty');
            const start = performance.now();
            await this.eval(ids, { signal, onPrompt });
            stats.promptTokens = ids.length;
            stats.promptSeconds = (performance.now() - start) / 1000;
            for (let from = performance.now(); stats.tokens < tokens;) {
                const id = sampler.next();
                if (!ignoreEnd && model.isEnd(id, { chat })) { stats.reason = 'end'; break; }
                onToken?.(id);
                stats.tokens++;
                const text = shown(decoder.text(id));
                if (text) yield text;
                if (shown.found) { stats.reason = 'stop'; break; }
                await breathe();
                if (signal?.aborted) { stats.reason = 'stopped'; break; }
                if (this.length >= this.context) { stats.reason = 'context'; break; }
                await this.eval([id]);
                stats.seconds = (performance.now() - from) / 1000;
            }
            stats.reason ||= 'tokens';
            const left = shown(decoder.text(-1)) + shown.rest();
            if (left) yield left;
        } finally {
            decoder.close();
            sampler.close();
        }
    }

    close() {
        this.engine.call.release(this.address);
        this.engine.call.release(this.history);
        this.address = 0;
    }
}

/* ---- CONVERSATION ----------------------------------------------------------------------------------------------- */

/** Turns of a user and of the model. For each answer all of them are written in the model's chat format; what the session
 * holds already, the longest common beginning, is not evaluated again. */
export class Conversation {
    constructor(session, { system = '' } = {}) {
        if (session.model.chat === 'none') throw new TfmError('the model\'s file has no chat format');
        Object.assign(this, { session, system, turns: [] });
    }

    /** What the user says; yields the model's answer as it is made. Without an answer the turns stay as they were. */
    async *say(text, options = {}) {
        const { session } = this, asked = [...this.turns, { role: 'user', text }];
        const ids = session.model.tokenizeChat(this.system ? [{ role: 'system', text: this.system }, ...asked] : asked, options);
        if (ids.length > session.context) {
            throw new TfmError(`the conversation is ${ids.length} tokens long, the context ${session.context}`, ERR_CONTEXT);
        }
        let answer = '';
        try {
            for await (const piece of session.generate(ids.subarray(session.keep(ids)), { ...options, chat: true })) {
                answer += piece;
                yield piece;
            }
        } finally { if (answer) this.turns = [...asked, { role: 'assistant', text: answer }]; }
    }

    clear() { this.turns = []; }
    close() { this.session.close(); }
}
