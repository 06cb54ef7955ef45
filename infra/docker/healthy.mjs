// Health check of a worker, by its folder: its event loop runs, and store and Temporal have answered it. Exit code 0 or 1.
// Usage: node healthy.mjs [FOLDER]; default: LONGHAUL_FOLDER.
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** A worker touches its file every 250 ms. If it computes for this long without a pause, its peers report it as dead, too. */
const longestSilenceMs = 10_000;

const folder = process.argv[2] ?? process.env.LONGHAUL_FOLDER ?? '';
try {
  const path = join(folder, 'life.json');
  const life = JSON.parse(readFileSync(path, 'utf8'));
  const silentMs = Date.now() - statSync(path).mtimeMs;
  if (silentMs > longestSilenceMs) fail(`silent for ${Math.round(silentMs / 1000)} s`);
  else if (life.left) fail('leaving');
  // A process that does not serve yet still names its predecessor in the file.
  else if ('before' in life) fail('store or Temporal has not answered yet');
} catch (error) {
  fail(`no worker has started in ${JSON.stringify(folder)}: ${error.message}`);
}

function fail(reason) {
  console.error(`not healthy: ${reason}`);
  process.exitCode = 1;
}
