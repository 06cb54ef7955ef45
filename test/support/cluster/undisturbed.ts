// The result of an undisturbed run, with which disturbed runs are compared. Bits are equal everywhere, so in a whole test run it is computed
// once, on the cluster of the file that asks first.
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Cluster } from './cluster.js';
import { until } from '../until.js';
import { type Verdict, verdictOf } from '../verdict.js';
import { testRunFolder } from '../whole-run/global-setup.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';

/** A run takes seconds; beside other work it takes minutes. */
const computedWithinMs = 600_000;

/** `named` makes the spec of the disturbed runs. All of an undisturbed run's steps change the weights. */
export async function undisturbedVerdict(
  cluster: Cluster,
  named: (name: string) => RunSpec,
): Promise<Verdict> {
  const file = join(testRunFolder(), `undisturbed-${digestOf(named(''))}.json`);
  const lock = `${file}.lock`;
  await until(() => existsSync(file) || tryLock(lock), `the undisturbed run of ${file}`, computedWithinMs);
  if (existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')) as Verdict;
  try {
    const name = `undisturbed-${randomBytes(4).toString('hex')}`;
    await cluster.ended(await cluster.run(named(name)), computedWithinMs);
    const verdict = await verdictOf(cluster.store, name);
    if (verdict.violations.length > 0 || verdict.applied !== verdict.states.length - 1)
      throw new Error(`the undisturbed run is no measure: ${JSON.stringify({ ...verdict, episodes: [] })}`);
    writeFileSync(`${file}.new`, JSON.stringify(verdict));
    renameSync(`${file}.new`, file);
    return verdict;
  } finally {
    rmSync(lock, { recursive: true });
  }
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

function tryLock(lock: string): boolean {
  try {
    mkdirSync(lock);
    return true;
  } catch {
    return false;
  }
}
