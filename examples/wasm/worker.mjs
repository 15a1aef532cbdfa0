/* worker.mjs - runs a model for a page, so that the page stays live. One request at a time:
 *     { type: 'load', source: File or URL, options }    progress..., loaded | error
 *     { type: 'generate', prompt, options }             text..., done | error: a text from its beginning
 *     { type: 'say', text, system, options }            text..., done | error: the next turn of the conversation
 *     { type: 'stop' }  { type: 'clear' }               nothing; clear: the conversation begins anew
 */
import { Conversation, ERR_CONTEXT, load } from './tfm.mjs';

let model = null, session = null, conversation = null, stop = null;
const say = (type, more = {}) => self.postMessage({ type, ...more });

async function open({ source, options }) {
    model?.close();
    model = session = conversation = null;
    let last = 0;
    model = await load(source, { ...options, signal: stop.signal, onProgress: (done, total, what) => {
        if (performance.now() - last < 50 && done < total) return;
        last = performance.now();
        say('progress', { done, total, what });
    } });
    session = model.session({ ...options, context: Math.min(options.context ?? 4096, model.info.context) });
    if (model.chat === 'format') conversation = new Conversation(session);
    say('loaded', { chat: model.chat, info: model.info, bytes: model.bytes, memory: model.memory, variant: model.variant, threads: model.threads,
        context: session.context, warnings: model.warnings });
}

/* What every piece of text and the end of it come with. */
async function write(pieces) {
    let text = '', last = performance.now();
    const flush = () => { if (text) say('text', { text, stats: session.stats }); text = ''; last = performance.now(); };
    for await (const piece of pieces) {
        text += piece;
        if (performance.now() - last > 30) flush();
    }
    flush();
}

const report = options => ({ ...options, signal: stop.signal, onPrompt: (done, total) => say('progress', { done, total, what: 'reading' }) });
const requests = {
    load: open,
    async generate({ prompt, options }) {
        session.rewind(0);
        await write(session.generate(prompt, report(options)));
    },
    async say({ text, system, options }) {
        conversation.system = system;
        await write(conversation.say(text, report(options)));
    },
};

self.onmessage = async ({ data }) => {
    if (data.type === 'stop') return stop?.abort();
    if (data.type === 'clear') return conversation?.clear();
    stop = new AbortController();
    const turns = conversation?.turns.length, answered = () => conversation?.turns.length > turns;
    try {
        if (data.type !== 'load' && !session) throw new Error('no model is loaded');
        await requests[data.type](data);
        if (data.type !== 'load') say('done', { stats: session.stats, answered: answered() });
    } catch (e) {
        if (e.name === 'AbortError') say('done', { stats: session?.stats ?? null, stopped: true, answered: answered() });
        else {
            const more = e.code === ERR_CONTEXT && data.type === 'say' ? '. Begin a new one, or load the model with a longer context.' : '';
            say('error', { message: e.message + more, during: data.type, answered: answered() });
        }
    }
};
say('ready');
