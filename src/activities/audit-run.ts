// The audit of a run, with the functions that plan its steps, seal its batches and judge its rewards: the store knows the records, not how
// they are made.
import { buildBatch } from './build-batch.js';
import { DatasetCache } from './dataset-cache.js';
import { makePlan } from './plan-step.js';
import { rebasedBatch } from './rebased-step.js';
import { RunDataCache } from './run-data.js';
import { isPass } from '../rl/pass.js';
import { auditChain, type ChainAudit } from '../store/chain-audit.js';
import { readControl } from '../store/control-records.js';
import type { ObjectStore } from '../store/object-store.js';

/** Throws `UnreadableRecord` when there is no such run; whatever else is wrong is a violation of the answer. */
export async function auditRun(
  store: ObjectStore,
  run: string,
  onProgress?: (place: string) => void,
): Promise<ChainAudit> {
  return auditChain(store, run, {
    isPass,
    ...(onProgress ? { onProgress } : {}),
    makers: (view) => {
      const runs = new RunDataCache(view, new DatasetCache(view));
      return {
        plan: async (stored) => {
          const control = await readControl(view, stored.run);
          return makePlan({ store: view, runs }, stored, control.slice(0, stored.control), stored);
        },
        batch: async (plan, episodes) => {
          const built = plan.rebased
            ? await rebasedBatch(view, plan, plan.rebased)
            : await buildBatch(plan, { episodes, data: () => runs.get(plan.run) });
          return built.bytes;
        },
      };
    },
  });
}
