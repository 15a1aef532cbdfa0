/* browser.mjs - headless Chromium through playwright-core: null if one of them is not here. */
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from './common.mjs';

export async function launch() {
    const chrome = process.env.CHROMIUM ?? '/usr/bin/chromium';
    if (!fs.existsSync(chrome)) return null;
    for (const from of [path.join(build, 'npm', 'x.js'), fileURLToPath(import.meta.url)]) {
        try {
            const { chromium } = createRequire(from)('playwright-core');
            return await chromium.launch({ executablePath: chrome, args: ['--no-sandbox', '--disable-gpu', '--disable-quic',
                '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'] });
        } catch (e) { if (e.code !== 'MODULE_NOT_FOUND') { console.log(String(e).split('\n')[0]); return null; } }
    }
    return null;
}
