// Audits a run. The store knows the records but not how they are made, so this file supplies the functions that plan steps, build batches
// and count evaluations.
import { baseModelDigest } from '../../policy/base-model.js';
import { buildBatch } from '../step/build-batch.js';
import { DatasetCache } from '../../data/dataset-cache.js';
import { makePlan } from '../step/plan-step.js';
import { rebasedBatch } from '../step/rebased-step.js';
import { wavesOf } from '../step/waves.js';
import { RunDataCache } from '../../data/run-data.js';
import { stateDigest } from '../../policy/state-file.js';
import { summarise } from '../evaluation/suite-evaluation.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { StepMakers } from '../../store/audit/chain.js';
import { auditChain, type ChainAudit } from '../../store/audit/chain-audit.js';
import { readControl } from '../../store/runs/control-records.js';
import type { ObjectStore } from '../../store/objects/object-store.js';

/** Throws `UnreadableRecord` if the run does not exist; every other problem is a violation in the report. */
export async function auditRun(
  store: ObjectStore,
  run: string,
  onProgress?: (place: string) => void,
): Promise<ChainAudit> {
  return auditChain(store, run, {
    countEvaluation: summarise,
    stateDigest: (file) => stateDigest(file),
    runProblems,
    ...(onProgress ? { onProgress } : {}),
    makers: auditMakers,
  });
}

/**
 * Checks the values that a run's record repeats or derives from its spec. The weights of a model from files are checked elsewhere, by their
 * digest.
 */
function runProblems({ seed, spec, base_model }: RunRecord, parent: RunRecord | null): string[] {
  const made =
    parent?.base_model ??
    (spec.model.architecture || spec.model.served ? baseModelDigest(spec, null) : base_model);
  return [
    ...(seed === spec.seed ? [] : [`its seed is ${seed}, but its spec says ${spec.seed}`]),
    ...(base_model === made
      ? []
      : [`its base_model is ${base_model}, but ${parent ? 'its parent has' : 'its spec gives'} ${made}`]),
  ];
}

/** The functions with which a run's steps are made. They read from `view`. */
export function auditMakers(view: ObjectStore): StepMakers {
  const runs = new RunDataCache(view, new DatasetCache(view));
  return {
    plan: async (stored) => {
      const control = await readControl(view, stored.run);
      return makePlan({ store: view, runs }, stored, control.slice(0, stored.control), false);
    },
    waves: async (plan, outcomes) => wavesOf(plan, outcomes, await runs.get(plan.run)),
    batch: async (plan, episodes) => {
      const built = plan.rebased
        ? await rebasedBatch(view, plan, plan.rebased)
        : await buildBatch(plan, { episodes, data: () => runs.get(plan.run) });
      return built.bytes;
    },
  };
}
