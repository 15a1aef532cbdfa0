/* page.mjs - the page: files, buttons and text on this side, the model in worker.mjs. */
import { features } from './tfm.mjs';

const $ = id => document.getElementById(id);
const can = features();
const worker = new Worker(new URL('./worker.mjs', import.meta.url), { type: 'module' });
let busy = '', loaded = false, name = '';

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
}

/* Where it happened: beside the file, or above the text. */
function error(message, during) {
    if (during === 'load') $('model-status').before($('error'));
    else $('output').before($('error'));
    $('error').hidden = !message;
    $('error').textContent = message ?? '';
}

/* ---- loading ---------------------------------------------------------------------------------------------------- */

function open(source, title) {
    if (busy) return;
    error();
    name = title;
    loaded = false;
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

function add(text, made) {
    const out = $('output'), follow = out.scrollTop + out.clientHeight > out.scrollHeight - 30;
    const span = document.createElement('span');
    if (made) span.className = 'made';
    span.textContent = text;
    out.append(span);
    if (follow) out.scrollTop = out.scrollHeight;
}

$('form').onsubmit = e => {
    e.preventDefault();
    const prompt = $('prompt').value;
    if (!loaded || busy || !prompt) return;
    error();
    worker.postMessage({ type: 'reset' });
    $('output').replaceChildren();
    add(prompt, false);
    $('figures').textContent = 'Reading the text …';
    show('generate');
    const seed = $('seed').value === '' ? undefined : number('seed');
    worker.postMessage({ type: 'generate', prompt, options: { tokens: number('tokens') || 1, temp: number('temp'),
        topK: number('topk'), topP: number('topp'), minP: number('minp'), repeatPenalty: number('repeat'), seed } });
};
const stop = () => { if (busy === 'generate') worker.postMessage({ type: 'stop' }); };
$('stop').onclick = stop;
$('clear').onclick = () => { $('output').replaceChildren(); $('figures').textContent = ''; error(); $('prompt').focus(); };
addEventListener('keydown', e => {
    if (e.key === 'Escape') stop();
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey) && !$('go').disabled) $('form').requestSubmit();
});

const REASONS = { end: 'the model ended its text', tokens: 'as many tokens as asked for', stopped: 'stopped', context: 'the context is full' };
function figures(s) {
    if (!s) return;
    const parts = [`${s.tokens} tokens`];
    if (s.seconds > 0) parts.push(`${(s.tokens / s.seconds).toFixed(1)} tokens/s`);
    if (s.promptSeconds > 0) parts.push(`prompt of ${s.promptTokens} at ${(s.promptTokens / s.promptSeconds).toFixed(1)} tokens/s`);
    if (s.reason) parts.push(REASONS[s.reason]);
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
        show('');
        $('model-status').textContent = `${name}: ${megabytes(m.bytes)}, ${m.info.layers} layers, context ${m.context}; ` +
            `${m.variant} module, ${m.threads} ${m.threads === 1 ? 'thread' : 'threads'}, ${megabytes(m.memory)} of memory.` +
            (m.warnings.length ? ` Warnings: ${m.warnings.join('; ')}.` : '');
        $('prompt').focus();
    },
    text({ text, stats }) { add(text, true); figures(stats); },
    done({ stats, stopped }) {
        const was = busy;
        if (stopped && stats) stats.reason = 'stopped';
        show('');
        if (was === 'generate') figures(stats);
        else $('model-status').textContent = 'Cancelled.';
    },
    error({ message, during }) {
        show('');
        if (during === 'load') $('model-status').textContent = 'No model is loaded.';
        $('figures').textContent = '';
        error(message, during);
    },
};
worker.onmessage = ({ data }) => answers[data.type](data);
worker.onerror = e => error(`The worker stopped: ${e.message}`);
show('');
