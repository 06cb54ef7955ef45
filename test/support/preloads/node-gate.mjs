// A node worker that does not start while the file `{its folder}.away` exists. An environment variable names the worker's real script.
import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const away = `${process.argv[process.argv.indexOf('--folder') + 1]}.away`;
// No signal handler is installed yet, so SIGTERM ends the process.
while (existsSync(away)) await delay(50);
await import(pathToFileURL(process.env['LONGHAUL_CHAOS_NODE_SCRIPT']).href);
