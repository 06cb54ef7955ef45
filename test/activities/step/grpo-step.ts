// The first GRPO step of a run in separate calls: plan, collect, seal and update, with outcomes that a test can set.
import { beforeEach } from 'vitest';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import type { PlannedStep } from '../../../src/activities/contracts.js';
import { sealBatch } from '../../../src/activities/step/seal-batch.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import type { EpisodeRecord, Outcome } from '../../../src/spec/records/episode.js';
import type { GrpoPlan } from '../../../src/spec/records/plan.js';
import { episodeKey } from '../../../src/store/record-keys.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readPlan } from '../../../src/store/runs/run-records.js';
import { activityId, lastSftStep, reviseRecord, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';

export { environments, harness } from '../own-harness.js';

/** Gives each test of a file its own run, after its warm start. */
export function useGrpoStep(): void {
  useHarness();
  beforeEach(() => harness.advance(lastSftStep));
}

/** The first GRPO step. Its plan has two slots of two samples. */
export const step = lastSftStep + 1;
export async function planned(at = step): Promise<{ answer: PlannedStep; plan: GrpoPlan }> {
  const answer = await harness.plan(at);
  const record = await readPlan(harness.store, { run, step: at, plan: answer.plan });
  if (record.kind !== 'grpo') throw new Error(`step ${at} is no GRPO step`);
  return { answer, plan: record };
}

export const collect = (
  answer: PlannedStep,
  slots: [number, number] = [0, answer.slots],
  deps = harness.node,
  attempt = 1,
) =>
  harness.attempt(
    activityId(answer.step, 'collect'),
    () => collectRollouts(deps, { ...harness.reference(answer), slots }),
    attempt,
  );
export const seal = async (answer: PlannedStep, deps = harness.node) => {
  const record = await readPlan(harness.store, { run, step: answer.step, plan: answer.plan });
  const data = await deps.runs.get(run);
  return harness.attempt('seal', () => sealBatch(deps.store, record, data));
};
export const update = (answer: PlannedStep, deps = harness.node, attempt = 1) =>
  harness.attempt('update', () => updatePolicy(deps, harness.reference(answer)), attempt);
export const episodeAt = (slot: number, sample: number, at = step): Promise<EpisodeRecord> =>
  requireRecord(harness.store, episodeKey(run, at, slot, sample), 'episode');

/** Sets an episode's outcome, because the barely trained policy never passes. */
export const setOutcome = (slot: number, sample: number, outcome: Outcome, at = step): Promise<void> =>
  reviseRecord(harness.store, episodeKey(run, at, slot, sample), 'episode', (record) => ({
    ...record,
    outcome,
  }));
export const passed: Outcome = { status: 'graded', value: 1 };
export const unknown: Outcome = { status: 'unknown', reason: 'call', failures: 3 };
