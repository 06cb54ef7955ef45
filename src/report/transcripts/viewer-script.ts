// The script of the report's page, from the file beside this one, in `src/` and in `dist/` alike (`tools/copy-assets.mjs`).
import { readFileSync } from 'node:fs';

export const viewerScript = readFileSync(new URL('./viewer.browser.js', import.meta.url), 'utf8');
