/* page.mjs - the page: files, buttons and text on this side, the model in worker.mjs. */
import { features } from './tfm.mjs';

const $ = id => document.getElementById(id);
const can = features();
const worker = new Worker(new URL('./worker.mjs', import.meta.url), { type: 'module' });
let busy = '', loaded = false, name = '', mode = '', answering = null;

if (can.threads) $('threads').value = Math.min(4, navigator.hardwareConcurrency ?? 1);
else {
    $('threads').disabled = true;
    $('engine-hint').textContent += ' Threads need a server that sends the headers COOP and COEP.';
}
for (const option of $('variant').options) if (option.value in can && !can[option.value]) option.disabled = true;
fetch('stories.tfm', { method: 'HEAD' }).then(r => { $('try').hidden = !r.ok; }).catch(() => {});

const megabytes = n => `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} MB`;
const number = id => Number($(id).value);

function show(what) {
    busy = what;
    $('loading').hidden = what !== 'load';
    $('pick').disabled = $('try').disabled = what !== '';
    $('pick-label').setAttribute('aria-disabled', what !== '');
    $('prompt').disabled = !loaded;
    $('go').disabled = $('clear').disabled = !loaded || what !== '';
    $('stop').disabled = what !== 'generate';
    for (const choice of $('form').elements.mode) choice.disabled = what !== '' || (choice.value === 'chat' && !canChat());
    $('output').setAttribute('aria-busy', what === 'generate'); // a screen reader tells an answer when it is whole
}

/* Where it happened: beside the file, or above the text or the message. */
function error(message, during) {
    if (during === 'load') $('model-status').before($('error'));
    else (mode === 'chat' ? $('write') : $('output')).before($('error'));
    $('error').hidden = !message;
    $('error').textContent = message ?? '';
}

/* ---- text or conversation --------------------------------------------------------------------------------------- */

const MODES = {
    plain: { title: 'Text', label: 'Your text; the model goes on with it', go: 'Go on', clear: 'Clear', empty: 'The text appears here.',
        keys: '<kbd>Ctrl</kbd>+<kbd>Enter</kbd> starts, <kbd>Esc</kbd> stops', end: 'the model ended its text',
        kept: { prompt: 'Once upon a time, there was a little fox who', output: [] } },
    chat: { title: 'Conversation', label: 'Your message', go: 'Send', clear: 'New conversation', empty: 'Nothing is said yet.',
        keys: '<kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> begins a line, <kbd>Esc</kbd> stops', end: 'the model ended its answer',
        kept: { prompt: '', output: [] } },
};
const CHAT_HINTS = {
    none: 'This model’s file says nothing about conversations, so the model can only go on with a text.',
    template: 'This model’s chat format is a template that needs a native program, so here the model can only go on with a text.',
    format: '',
};
let chatFormat = '';
const canChat = () => loaded && chatFormat === 'format';

/* Each mode keeps its own text and output. */
function change(to) {
    if (mode) MODES[mode].kept = { prompt: $('prompt').value, output: [...$('output').childNodes] };
    mode = to;
    const m = MODES[to], chat = to === 'chat';
    for (const choice of $('form').elements.mode) choice.checked = choice.value === to;
    $('write-title').textContent = m.title;
    $('prompt-label').textContent = m.label;
    $('go').textContent = m.go;
    $('clear').textContent = m.clear;
    $('keys').innerHTML = m.keys;
    $('output').dataset.empty = m.empty;
    $('output').setAttribute('aria-label', chat ? 'Conversation' : 'Generated text');
    $('output').classList.toggle('chat', chat);
    $('system-box').hidden = !chat;
    if (chat) $('write').before($('output'));
    else $('figures').before($('output'));
    $('prompt').value = m.kept.prompt;
    $('output').replaceChildren(...m.kept.output);
    $('figures').textContent = '';
    error();
}
for (const choice of $('form').elements.mode) choice.onchange = () => change(choice.value);

/* ---- loading ---------------------------------------------------------------------------------------------------- */

function open(source, title) {
    if (busy) return;
    error();
    name = title;
    loaded = false;
    forget();
    $('bar').removeAttribute('value');
    $('loading-text').textContent = `Loading ${title}`;
    $('model-status').textContent = '';
    show('load');
    const options = { variant: $('variant').value, threads: number('threads'), context: number('context') || undefined };
    worker.postMessage({ type: 'load', source, options });
}

$('pick').onchange = ({ target }) => {
    if (target.files.length) open(target.files[0], target.files[0].name);
    target.value = '';
};
$('try').onclick = () => open(new URL('stories.tfm', location.href).href, 'the story model');
$('cancel').onclick = () => worker.postMessage({ type: 'stop' });
addEventListener('dragover', e => { e.preventDefault(); document.body.classList.add('dropping'); });
addEventListener('dragleave', e => { if (!e.relatedTarget) document.body.classList.remove('dropping'); });
addEventListener('drop', e => {
    e.preventDefault();
    document.body.classList.remove('dropping');
    const file = e.dataTransfer.files[0];
    if (file) open(file, file.name);
});

/* ---- writing ---------------------------------------------------------------------------------------------------- */

function follow(change) {
    const out = $('output'), at_end = out.scrollTop + out.clientHeight > out.scrollHeight - 30;
    change(out);
    if (at_end) out.scrollTop = out.scrollHeight;
}
function make(tag, classes, ...inside) {
    const e = document.createElement(tag);
    e.className = classes;
    e.append(...inside);
    return e;
}
const addText = text => follow(out => (answering ?? out).append(make('span', 'made', text)));

/* What was said, and room for the answer. */
function addTurns(text) {
    answering = make('p', 'waiting');
    follow(out => out.append(make('div', 'turn user', make('b', '', 'You'), make('p', '', text)),
        make('div', 'turn model', make('b', '', 'Model'), answering)));
    $('output').scrollTop = $('output').scrollHeight;
}
/* An answer that never came takes the question back. */
function endTurn(answered) {
    if (!answering) return;
    answering.classList.remove('waiting');
    if (!answered) {
        const [asked, answer] = [...$('output').children].slice(-2);
        $('prompt').value ||= asked.lastChild.textContent;
        asked.remove();
        answer.remove();
    }
    answering = null;
}
function forget() {
    MODES.chat.kept.output = [];
    if (mode === 'chat') $('output').replaceChildren();
    worker.postMessage({ type: 'clear' });
}

$('form').onsubmit = e => {
    e.preventDefault();
    const prompt = $('prompt').value;
    if (!loaded || busy || !prompt) return;
    error();
    $('figures').textContent = 'Reading the text …';
    show('generate');
    const seed = $('seed').value === '' ? undefined : number('seed');
    const options = { tokens: number('tokens') || 1, temp: number('temp'), topK: number('topk'), topP: number('topp'), minP: number('minp'),
        repeatPenalty: number('repeat'), seed };
    if (mode === 'chat') {
        addTurns(prompt);
        $('prompt').value = '';
        worker.postMessage({ type: 'say', text: prompt, system: $('system').value.trim(), options });
    } else {
        $('output').replaceChildren(make('span', '', prompt));
        worker.postMessage({ type: 'generate', prompt, options });
    }
};
const stop = () => { if (busy === 'generate') worker.postMessage({ type: 'stop' }); };
$('stop').onclick = stop;
$('clear').onclick = () => {
    if (mode === 'chat') forget();
    $('output').replaceChildren();
    $('figures').textContent = '';
    error();
    $('prompt').focus();
};
addEventListener('keydown', e => {
    if (e.key === 'Escape') stop();
    if (e.key !== 'Enter' || e.isComposing || $('go').disabled) return;
    // On a screen that is touched Enter begins a line, as everywhere there.
    const sends = mode === 'chat' && e.target === $('prompt') && !e.shiftKey && !matchMedia('(pointer: coarse)').matches;
    if (!sends && !e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    $('form').requestSubmit();
});

const REASONS = { tokens: 'as many tokens as asked for', stopped: 'stopped', context: 'the context is full' };
function figures(s) {
    if (!s) return;
    const parts = [`${s.tokens} tokens`];
    if (s.seconds > 0) parts.push(`${(s.tokens / s.seconds).toFixed(1)} tokens/s`);
    if (s.promptSeconds > 0) parts.push(`prompt of ${s.promptTokens} at ${(s.promptTokens / s.promptSeconds).toFixed(1)} tokens/s`);
    if (s.reason) parts.push(REASONS[s.reason] ?? MODES[mode].end);
    $('figures').textContent = parts.join(' · ');
}

/* ---- what the worker says --------------------------------------------------------------------------------------- */

const answers = {
    ready() {},
    progress({ done, total, what }) {
        if (what === 'reading') { $('figures').textContent = `Reading the text: ${done} of ${total} tokens`; return; }
        $('bar').value = total ? done / total : 0;
        $('loading-text').textContent = `${what === 'converting' ? 'Converting' : 'Loading'} ${name}: ${megabytes(done)} of ${megabytes(total)}`;
    },
    loaded(m) {
        loaded = true;
        chatFormat = m.chat;
        change(m.chat === 'format' ? 'chat' : 'plain');
        $('mode-hint').textContent = CHAT_HINTS[m.chat];
        show('');
        $('model-status').textContent = `${name}: ${megabytes(m.bytes)}, ${m.info.layers} layers, context ${m.context}; ` +
            `${m.variant} module, ${m.threads} ${m.threads === 1 ? 'thread' : 'threads'}, ${megabytes(m.memory)} of memory.` +
            (m.warnings.length ? ` Warnings: ${m.warnings.join('; ')}.` : '');
        $('prompt').focus();
    },
    text({ text, stats }) { addText(text); figures(stats); },
    done({ stats, stopped, answered }) {
        const was = busy;
        endTurn(answered);
        if (stopped && stats) stats.reason = 'stopped';
        show('');
        if (was === 'generate') figures(stats);
        else $('model-status').textContent = 'Cancelled.';
    },
    error({ message, during, answered }) {
        endTurn(answered);
        show('');
        if (during === 'load') $('model-status').textContent = 'No model is loaded.';
        $('figures').textContent = '';
        error(message, during);
    },
};
worker.onmessage = ({ data }) => answers[data.type](data);
worker.onerror = e => error(`The worker stopped: ${e.message}`);
change('plain');
show('');
