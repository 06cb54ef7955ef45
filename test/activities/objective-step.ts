// Runs with objectives of their own, step by step: the first sample of each GRPO step has passed, so that there is something to learn.
import { collectRollouts } from '../../src/activities/collect-rollouts.js';
import type { CommittedStep } from '../../src/activities/contracts.js';
import { updatePolicy } from '../../src/activities/update-policy.js';
import type { PlanRecord } from '../../src/spec/records.js';
import { episodeKey } from '../../src/store/layout.js';
import { encodeRecord } from '../../src/store/record-codec.js';
import { requireRecord } from '../../src/store/records.js';
import { readPlan } from '../../src/store/run-records.js';
import { type Harness, lastSftStep, run, tamper } from './fixture.js';

/** The first GRPO step. */
export const step = lastSftStep + 1;

/** Opens the harness's run with other settings of `trainer` and `model`, and takes its supervised steps. */
export async function begin(harness: Harness, trainer: object, model: object = {}): Promise<void> {
  const part = (name: string): object => harness.spec[name] as object;
  await harness.open({
    ...harness.spec,
    model: { ...part('model'), ...model },
    trainer: { ...part('trainer'), ...trainer },
  });
  await harness.advance(lastSftStep);
}

export async function planOf(harness: Harness, at: number): Promise<PlanRecord> {
  return (await readPlan(harness.store, run, at)).record;
}

/** `control`: what of it the workflow knows. */
export async function take(
  harness: Harness,
  at: number,
  { deps = harness.node, control = 0 } = {},
): Promise<CommittedStep> {
  const planned = await harness.plan(at, control);
  const reference = harness.reference(planned);
  await harness.attempt(`step-${at}/collect`, () =>
    collectRollouts(deps, { ...reference, slots: [0, planned.slots] }),
  );
  const key = episodeKey(run, at, 0, 0);
  const record = await requireRecord(harness.store, key, 'episode');
  const bytes = await encodeRecord('episode', { ...record, outcome: { status: 'graded', value: 1 } });
  await tamper(harness.store, key, () => bytes);
  return harness.attempt(`step-${at}/update`, () => updatePolicy(deps, reference));
}
