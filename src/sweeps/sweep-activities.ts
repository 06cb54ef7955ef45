// The sweep's activities of the queue `longhaul`.
import { withFailures } from '../activities/failure-mapping.js';
import { compareSweep } from './compare-sweep.js';
import { pairsToDo, planSweep, type SweepDeps } from './plan-sweep.js';
import type { SweepActivities } from './sweep-contracts.js';

export function createSweepActivities(deps: SweepDeps): SweepActivities {
  return {
    planSweep: withFailures((input) => planSweep(deps, input)),
    pairsToDo: withFailures((input) => pairsToDo(deps, input)),
    compareSweep: withFailures((input) => compareSweep(deps, input)),
  };
}
