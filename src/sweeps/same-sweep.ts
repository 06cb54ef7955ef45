// A sweep chooses only once what it evaluates, so a restart under the same id must have the same spec.
import { InvalidSpec } from '../spec/invalid-spec.js';
import type { SweepSpec } from '../spec/sweep-spec.js';
import { differences } from '../store/records/canonical.js';

/** Throws `InvalidSpec` if `given` differs from `stored`. Only the firing times and the number of nodes may differ. */
export function refuseOtherSweep(sweep: string, stored: SweepSpec, given: SweepSpec): void {
  const found = differences(comparable(stored), comparable(given));
  if (found.length === 0) return;
  const problem = `${sweep} was started with another spec:\n${found.map((line) => `    ${line}`).join('\n')}`;
  const fix =
    'restore the file to continue the sweep, or start it under another id: that sweep reuses the finished evaluations too';
  throw new InvalidSpec([{ path: '', problem, fix }], `sweep ${given.name}`);
}

function comparable({ schedule: _schedule, parallel: _parallel, ...spec }: SweepSpec): unknown {
  return spec;
}
