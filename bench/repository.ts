// Where the checkout is, from sources and from `dist/dev/` alike, and which code a measurement was made with.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { availableParallelism, cpus, totalmem } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const repository = rootOf(dirname(fileURLToPath(import.meta.url)));

/** What a figure depends on: what is measured, and what measures it. Other tests and documents may change without making it old. */
const measuredCode = ['src', 'native', 'presets', 'bench', 'test/chaos', 'test/support'];
/** Of that, what the parts named `engine/…` depend on: they start the engine, and nothing of the runs around it. */
const engineCode = /^(native|src\/engine)\/|^bench\/(engine-|native-engine\.)/;
/** Not measured: written by whoever measures, and tests of the harness itself. */
const notMeasured = /^bench\/results\.json(\.draft)?$|\.test\.ts$/;

export interface Machine {
  cpu: string;
  cores: number;
  memoryGiB: number;
  node: string;
}

/** sha256 over paths and contents of the code that a part of the benchmarks depends on, 16 hex digits. */
export function codeHash(part: string): string {
  const hash = createHash('sha256');
  for (const name of measuredFiles(part))
    hash
      .update(`${name}\0`)
      .update(readFileSync(join(repository, name)))
      .update('\0');
  return hash.digest('hex').slice(0, 16);
}

/** Paths in the checkout, `/` between their parts, in the order in which they are hashed. */
export function measuredFiles(part: string): string[] {
  const ofEngine = part.startsWith('engine/');
  return measuredCode
    .flatMap((folder) => filesBelow(join(repository, folder)))
    .map((path) => relative(repository, path))
    .filter((name) => !notMeasured.test(name))
    .filter((name) => !ofEngine || engineCode.test(name));
}

/** Short commit; with `+` where the measured code differs from it. `unknown` outside of a git checkout. */
export function commit(): string {
  try {
    const git = (...args: string[]): string =>
      execFileSync('git', args, {
        cwd: repository,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      }).trim();
    const changes = git('status', '--porcelain', '-uall', '--no-renames', '--', ...measuredCode).split('\n');
    const changed = changes.some(
      (line) => line !== '' && !notMeasured.test(line.trim().replace(/^\S+ +/, '')),
    );
    return `${git('rev-parse', '--short', 'HEAD')}${changed ? '+' : ''}`;
  } catch {
    return 'unknown';
  }
}

export function machine(): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
  };
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder)
    .sort()
    .flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? filesBelow(path) : [path];
    });
}

function rootOf(folder: string): string {
  if (existsSync(join(folder, 'package-lock.json'))) return folder;
  if (folder === dirname(folder)) throw new Error('the benchmarks lie in no checkout of Longhaul');
  return rootOf(dirname(folder));
}
