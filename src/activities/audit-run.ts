// The audit of a run, with the functions that seal its batches and judge its rewards: the store knows the records, not how
// they are made.
import { buildBatch } from './build-batch.js';
import { DatasetCache } from './dataset-cache.js';
import { rebasedBatch } from './rebased-step.js';
import { RunDataCache } from './run-data.js';
import { isPass } from '../rl/pass.js';
import { auditChain, type ChainAudit } from '../store/chain-audit.js';
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
    rebuilder: (view) => {
      const runs = new RunDataCache(view, new DatasetCache(view));
      return async (plan, episodes) => {
        const built = plan.rebased
          ? await rebasedBatch(view, plan, plan.rebased)
          : await buildBatch(plan, { episodes, data: () => runs.get(plan.run) });
        return built.bytes;
      };
    },
  });
}
