/* serve.mjs - a directory on a free local port, with or without the headers that give a page shared memory. */
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';

const TYPES = { '.html': 'text/html', '.mjs': 'text/javascript', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm' };

/* more: further files by name. */
export function serve(root, more = {}, isolated = true) {
    const server = http.createServer((request, answer) => {
        const name = decodeURIComponent(request.url.split('?')[0]).slice(1) || 'index.html';
        const file = more[name] ?? path.join(root, path.normalize(`/${name}`));
        fs.stat(file, (error, info) => {
            if (error || !info.isFile()) { answer.writeHead(404); return answer.end(); }
            answer.writeHead(200, { 'Content-Type': TYPES[path.extname(name)] ?? 'application/octet-stream', 'Content-Length': info.size,
                ...isolated && { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' } });
            if (request.method === 'HEAD') answer.end();
            else fs.createReadStream(file).pipe(answer);
        });
    });
    return new Promise(resolve => server.listen(0, '127.0.0.1', () => resolve({
        url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() })));
}
