/* worker.mjs - runs a model for a page, so that the page stays live. One request at a time:
 *     { type: 'load', source: File or URL, options }    progress..., loaded | error
 *     { type: 'generate', prompt, options }             text..., done | error
 *     { type: 'stop' }  { type: 'reset' }
 */
import { load } from './tfm.mjs';

let model = null, session = null, stop = null;
const say = (type, more = {}) => self.postMessage({ type, ...more });

async function open({ source, options }) {
    model?.close();
    model = session = null;
    let last = 0;
    model = await load(source, { ...options, signal: stop.signal, onProgress: (done, total, what) => {
        if (performance.now() - last < 50 && done < total) return;
        last = performance.now();
        say('progress', { done, total, what });
    } });
    session = model.session({ ...options, context: Math.min(options.context ?? 4096, model.info.context) });
    say('loaded', { info: model.info, bytes: model.bytes, memory: model.memory, variant: model.variant, threads: model.threads,
        context: session.context, warnings: model.warnings });
}

async function generate({ prompt, options }) {
    if (!session) throw new Error('no model is loaded');
    let pieces = '', last = performance.now();
    const flush = () => { if (pieces) say('text', { text: pieces, stats: session.stats }); pieces = ''; last = performance.now(); };
    for await (const text of session.generate(prompt, { ...options, signal: stop.signal,
        onPrompt: (done, total) => say('progress', { done, total, what: 'reading' }) })) {
        pieces += text;
        if (performance.now() - last > 30) flush();
    }
    flush();
    say('done', { stats: session.stats, length: session.length });
}

self.onmessage = async ({ data }) => {
    if (data.type === 'stop') return stop?.abort();
    if (data.type === 'reset') return session?.rewind(0);
    stop = new AbortController();
    try {
        await (data.type === 'load' ? open(data) : generate(data));
    } catch (e) {
        if (e.name === 'AbortError') say('done', { stats: session?.stats ?? null, length: session?.length ?? 0, stopped: true });
        else say('error', { message: e.message, during: data.type });
    }
};
say('ready');
