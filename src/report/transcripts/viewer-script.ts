// Reads the script of the report's page from the file beside this one. That works in `src/` and in `dist/`, where `tools/copy-assets.mjs`
// puts it.
import { readFileSync } from 'node:fs';

export const viewerScript = readFileSync(new URL('./viewer.browser.js', import.meta.url), 'utf8');
