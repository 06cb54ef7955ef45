// Makes the demonstrations of the presets with the compiled example, but only if its sources changed: that takes some 20 seconds.
import { existsSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { contentKey, repository } from './cache.mjs';
import { runLong } from './command.mjs';

const folder = join(repository, 'dist/demonstrations');
const stamp = join(folder, '.sources');

export async function ensureDemonstrations() {
  const key = contentKey([join(repository, 'examples/apps')]);
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === key) return;
  const program = join(repository, 'dist/examples/apps/demonstrations-main.js');
  await runLong(process.execPath, [program, folder], { label: 'demonstrations' });
  writeFileSync(stamp, key);
}

if (import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) await ensureDemonstrations();
