// Finds the Temporal server's binary. The set-up fetches or builds it into a cache outside the checkout.
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { builtToolPath } from '../workers/process/built-tool.js';

class TemporalBinaryMissing extends Error {
  constructor() {
    super(
      'no Temporal server was found: LONGHAUL_TEMPORAL is not set, `temporal` is not on the PATH, and set-up has not ' +
        'fetched one. Run `bash tools/ensure-temporal.sh` (`npm run quickstart` runs it too), or install the Temporal CLI',
    );
    this.name = 'TemporalBinaryMissing';
  }
}

/** Looks at LONGHAUL_TEMPORAL, then in the PATH, then in the set-up's cache. Throws `TemporalBinaryMissing`. */
export function findTemporalBinary(): string {
  const given = process.env['LONGHAUL_TEMPORAL'];
  if (given) {
    if (isExecutable(given)) return given;
    throw new Error(`LONGHAUL_TEMPORAL names ${given}, which is not an executable file`);
  }
  const onPath = (process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, 'temporal'));
  const built = builtToolPath('temporal');
  const found = onPath.find(isExecutable) ?? (built && isExecutable(built) ? built : null);
  if (!found) throw new TemporalBinaryMissing();
  return found;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
