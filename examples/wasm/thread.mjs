/* thread.mjs - one helper thread of a module with shared memory: takes parts of jobs for ever. */
const run = ({ module, memory, stack }, ready) => {
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    exports.__stack_pointer.value = stack;
    ready();
    exports.pool_worker();
};
if (typeof self === 'object' && typeof importScripts !== 'undefined' || typeof WorkerGlobalScope !== 'undefined') {
    self.onmessage = ({ data }) => run(data, () => self.postMessage('ready'));
} else {
    const { parentPort, workerData } = await import('node:worker_threads');
    run(workerData, () => parentPort.postMessage('ready'));
}
