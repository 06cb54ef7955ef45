// The inputs of an update: the temperature of the sampling, each demonstration in its order, and the run's own base model.
import { describe, expect, it } from 'vitest';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { drawDemonstrations } from '../../../src/rl/curriculum.js';
import { warmupThenDecay } from '../../../src/rl/learning-rate.js';
import type { SftPlan } from '../../../src/spec/records/plan.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { episodeKey, planKey, updateKey } from '../../../src/store/record-keys.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readState, readUpdate } from '../../../src/store/runs/run-records.js';
import { lastSftStep, reviseRecord, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';

useHarness();

describe('a GRPO update', () => {
  const step = lastSftStep + 1;

  it.each([0.7, 1.4])('computes the log-probs at the sampling’s temperature %s', async (temperature) => {
    const generator = { ...(harness.spec['generator'] as object), temperature };
    await harness.open({ ...harness.spec, generator });
    await harness.advance(lastSftStep);
    const reference = harness.reference(await harness.plan(step));
    await harness.attempt('collect', () => collectRollouts(harness.node, { ...reference, slots: [0, 2] }));
    // The barely trained policy never passes; without different outcomes, there would be nothing to learn.
    await reviseRecord(harness.store, episodeKey(run, step, 0, 0), 'episode', (episode) => ({
      ...episode,
      outcome: { status: 'graded', value: 1 },
    }));
    await harness.attempt('update', () => updatePolicy(harness.node, reference));
    const { identity, observed } = await readUpdate(harness.store, run, step);
    expect(identity.applied).toBe(true);
    expect(observed.metrics['policy/rollout_train_logprob_diff_max']).toBe(0);
    expect(observed.metrics['policy/mean_ratio']).toBe(1);
  });
});

describe('a supervised update', () => {
  it('continues with the demonstrations, learning rates and moments of the step before', async () => {
    const [phase] = harness.spec['warm_start'] as [object];
    const shape = {
      updates: 5,
      mini_batches_per_step: 2,
      mini_batch_size: 3,
      decay_share: 0.4,
      warmup_updates: 1,
    };
    await harness.open({ ...harness.spec, warm_start: [{ ...phase, ...shape }] });
    await harness.advance(2);
    await harness.plan(3);
    const { record } = await harness.orchestrator.runs.get(run);
    const [spec] = record.spec.warm_start as [RunSpec['warm_start'][number]];
    const plans = await Promise.all(
      [1, 2, 3].map(
        async (step) => (await requireRecord(harness.store, planKey(run, step), 'plan')) as SftPlan,
      ),
    );
    const all = drawDemonstrations({
      size: 12,
      miniBatchSize: 3,
      firstUpdate: 0,
      count: 5,
      seed: 5,
      phase: 'drill',
    });
    const { demonstrationsByKind } = await harness.orchestrator.runs.get(run);
    const lines = demonstrationsByKind.get('drill') ?? [];
    expect(lines).toHaveLength(12);
    expect(plans.flatMap((plan) => plan.mini_batches)).toEqual(
      all.map((places) => places.map((at) => lines[at])),
    );
    expect(plans.flatMap((plan) => plan.optimizer.learning_rates)).toEqual(
      [0, 1, 2, 3, 4].map((update) => warmupThenDecay(spec, update)),
    );
    expect(plans.map((plan) => plan.mini_batches.length)).toEqual([2, 2, 1]);
    expect(plans.map((plan) => plan.optimizer.reset_moments)).toEqual([true, false, false]);
  });
});

describe('a base model that differs from step 0', () => {
  it.each([0, 1])('is refused before step %s is built on it; the error names both states', async (step) => {
    await harness.advance(1);
    const recorded = await readState(harness.store, run, 0);
    const other = harness.secondNode();
    const { engine } = other.holder;
    const { loadRandom } = engine;
    // Like an engine with other numerics.
    engine.loadRandom = (model) => loadRandom({ ...model, seed: model.seed + 1 });
    const restored = other.holder.withState(run, step, 'visitor', () => Promise.resolve());
    await expect(restored).rejects.toMatchObject({
      name: 'Diverged',
      message: expect.stringMatching(`base model of ${run} .* step 0 records ${recorded}`) as string,
      evidence: { key: updateKey(run, 0), stored: recorded },
    });
    expect((await engine.stats())['updates']).toBe(0);
  });
});
