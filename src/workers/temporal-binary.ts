// Where the Temporal server's binary is. It is fetched or built by `npm run quickstart` and `npm test` into a cache outside the tree.
import { accessSync, constants, readdirSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';

export class TemporalBinaryMissing extends Error {
  constructor() {
    super(
      'no Temporal server was found: neither LONGHAUL_TEMPORAL, nor `temporal` on the PATH, nor one in ' +
        `${toolsFolder()}. Run \`npm run quickstart\` once, which fetches it, or install the Temporal CLI`,
    );
    this.name = 'TemporalBinaryMissing';
  }
}

/** LONGHAUL_TEMPORAL, then the PATH, then the newest one in the cache. Throws `TemporalBinaryMissing`. */
export function findTemporalBinary(): string {
  const given = process.env['LONGHAUL_TEMPORAL'];
  if (given) {
    if (isExecutable(given)) return given;
    throw new Error(`LONGHAUL_TEMPORAL names ${given}, which is no executable file`);
  }
  const onPath = (process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, 'temporal'));
  const found = onPath.find(isExecutable) ?? cached().find(isExecutable);
  if (!found) throw new TemporalBinaryMissing();
  return found;
}

function toolsFolder(): string {
  return join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'longhaul', 'tools');
}

function cached(): string[] {
  let names: string[];
  try {
    names = readdirSync(toolsFolder());
  } catch {
    return [];
  }
  const paths = names
    .filter((name) => name.startsWith('temporal-'))
    .map((name) => join(toolsFolder(), name, 'temporal'));
  return paths.filter(isExecutable).sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
