// A node worker that starts only while the file `{its folder}.away` is not there; the worker's real script is in the environment.
import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const away = `${process.argv[process.argv.indexOf('--folder') + 1]}.away`;
// No listener yet: whoever stops the stack meanwhile ends it.
while (existsSync(away)) await delay(50);
await import(pathToFileURL(process.env['LONGHAUL_CHAOS_NODE_SCRIPT']).href);
