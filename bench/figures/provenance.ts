// Says which code a measurement was made from, and on which machine.
import { execFileSync } from 'node:child_process';
import { availableParallelism, cpus, totalmem } from 'node:os';
import { repository } from '../repository.js';

/** Files that a measurement itself writes. Changes in them do not make a checkout unclean. */
const written = ['bench/results.json', 'docs/benchmarks.md'];

/** Short commit, with `+` if files other than `written` differ from it. `unknown` outside a git checkout. */
export function commit(): string {
  try {
    const git = (...args: string[]): string =>
      execFileSync('git', args, { cwd: repository, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    const changes = git('status', '--porcelain', '--', '.', ...written.map((path) => `:!${path}`));
    return `${git('rev-parse', '--short', 'HEAD').trim()}${changes === '' ? '' : '+'}`;
  } catch {
    return 'unknown';
  }
}

/** For example `AMD EPYC, 2 cores, 24 GiB, Node v20.20.2`. */
export function machine(): string {
  const cpu = cpus()[0]?.model.trim() ?? 'unknown processor';
  const memoryGiB = Math.round(totalmem() / 2 ** 30);
  return `${cpu}, ${availableParallelism()} cores, ${memoryGiB} GiB, Node ${process.version}`;
}
