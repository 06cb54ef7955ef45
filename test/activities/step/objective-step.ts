// Runs with other training objectives, step by step. The first sample of each GRPO step counts as passed, so that the step can learn.
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import type { CommittedStep } from '../../../src/activities/contracts.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import type { PlanRecord } from '../../../src/spec/records/plan.js';
import { episodeKey } from '../../../src/store/record-keys.js';
import { readPlan } from '../../../src/store/runs/run-records.js';
import { type Harness, lastSftStep, reviseRecord, run } from '../fixture.js';

/** The first GRPO step. */
export const step = lastSftStep + 1;

/** Opens the harness's run with changed settings of `trainer` and `model`, and takes its supervised steps. */
export async function begin(harness: Harness, trainer: object, model: object = {}): Promise<void> {
  await harness.open(specWith(harness, trainer, model));
  await harness.advance(lastSftStep);
}

/** Like `begin`, but without supervised steps: GRPO starts with the base model, at step 1. */
export async function beginCold(harness: Harness, trainer: object, model: object = {}): Promise<void> {
  await harness.open({ ...specWith(harness, trainer, model), warm_start: [] });
  await harness.advance(0);
}

export function specWith({ spec }: Harness, trainer: object, model: object = {}): Record<string, unknown> {
  return {
    ...spec,
    model: { ...(spec['model'] as object), ...model },
    trainer: { ...(spec['trainer'] as object), ...trainer },
  };
}

export async function planOf(harness: Harness, at: number): Promise<PlanRecord> {
  return readPlan(harness.store, { run, step: at });
}

/** Takes a GRPO step. `control`: number of control records that the workflow knows; `change`: changes the record of the passed episode. */
export async function take(
  harness: Harness,
  at: number,
  {
    deps = harness.node,
    control = 0,
    of = { run, owner: 1 },
    change = (record: EpisodeRecord): EpisodeRecord => record,
  } = {},
): Promise<CommittedStep> {
  const reference = { ...of, step: at };
  const { plan, slots } = await planStep(harness.orchestrator, { ...reference, control });
  const input = { ...reference, plan };
  await harness.attempt(`step-${at}/collect`, () => collectRollouts(deps, { ...input, slots: [0, slots] }));
  await reviseRecord(harness.store, episodeKey(of.run, at, 0, 0), 'episode', (record) =>
    change({ ...record, outcome: { status: 'graded', value: 1 } }),
  );
  return harness.attempt(`step-${at}/update`, () => updatePolicy(deps, input));
}
