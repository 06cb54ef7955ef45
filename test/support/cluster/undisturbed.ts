// The result of an undisturbed run, with which disturbed runs are compared. Bits are equal everywhere, so in a whole test run it is computed
// once, on the cluster of the file that asks first.
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Cluster } from './cluster.js';
import { exclusively } from '../exclusively.js';
import { type Verdict, verdictOf } from '../verdict.js';
import { testRunFolder } from '../whole-run/test-run.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';

/** `named` makes the spec of the disturbed runs. All of an undisturbed run's steps change the weights. */
export function undisturbedVerdict(cluster: Cluster, named: (name: string) => RunSpec): Promise<Verdict> {
  const file = join(testRunFolder(), `undisturbed-${digestOf(named(''))}`);
  return exclusively(file, async () => {
    const known = `${file}.verdict.json`;
    if (existsSync(known)) return JSON.parse(readFileSync(known, 'utf8')) as Verdict;
    const name = `undisturbed-${randomBytes(4).toString('hex')}`;
    await cluster.ended(await cluster.run(named(name)));
    const verdict = await verdictOf(cluster.store, name);
    if (verdict.violations.length > 0 || verdict.applied !== verdict.states.length - 1)
      throw new Error(
        `nothing can be compared with this undisturbed run: ${JSON.stringify({ ...verdict, episodes: [] })}`,
      );
    writeFileSync(`${known}.new`, JSON.stringify(verdict));
    renameSync(`${known}.new`, known);
    return verdict;
  });
}

/** Digest of everything that the states depend on: the spec without its name, and the contents of the data files in place of their paths. */
function digestOf({ data, ...spec }: RunSpec): string {
  const content = Object.entries(data).map(([key, value]) => [
    key,
    typeof value === 'string' ? readFileSync(value, 'utf8') : value,
  ]);
  return createHash('sha256')
    .update(JSON.stringify([spec, content]))
    .digest('hex')
    .slice(0, 16);
}
