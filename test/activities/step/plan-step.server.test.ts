// A plan depends only on the records before it and on the control that it is given (R7). The first plan wins (R2).
import { describe, expect, it, vi } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { recordControl } from '../../../src/activities/run/record-control.js';
import type { ControlChange } from '../../../src/spec/records/control-records.js';
import { controlFolder, planKey, updateKey } from '../../../src/store/record-keys.js';
import { readPlan, readState } from '../../../src/store/runs/run-records.js';
import { lastSftStep, run, startHarness, tamper } from '../fixture.js';
import {
  collect,
  episodeAt,
  environments,
  harness,
  passed,
  planned,
  setOutcome,
  step,
  unknown,
  update,
  useGrpoStep,
} from './grpo-step.js';

useGrpoStep();

describe('planStep', () => {
  it('gives the same bytes for the same records, wherever it runs', async () => {
    const { answer } = await planned();
    const first = await harness.store.get(planKey(run, step));
    await tamper(harness.store, planKey(run, step), () => null);
    expect(await harness.plan(step)).toEqual(answer);
    expect(await harness.store.get(planKey(run, step))).toEqual(first);
  });

  it('names the state before the step, and each slot with its task and seed; no task comes twice', async () => {
    const { plan } = await planned();
    expect(plan.previous_state).toBe(await readState(harness.store, run, step - 1));
    expect(plan.slots.map(({ slot }) => slot)).toEqual([0, 1]);
    expect(new Set(plan.slots.map(({ task_key }) => task_key)).size).toBe(2);
    expect(plan.optimizer.reset_moments).toBe(true);
  });

  it('fails with the control state for a workflow that lacks control records, whether or not the plan exists', async () => {
    const record = (updateId: string, change: ControlChange) =>
      recordControl(harness.orchestrator, { run, owner: 1, updateId, change });
    await record('a', { kind: 'setHyperparameters', lr: 0.25 });
    const control = await record('b', { kind: 'pause' });
    const refusal = { type: 'ControlIsBehind', nonRetryable: true, details: [control] };
    await expect(harness.plan(step, 1)).rejects.toMatchObject(refusal);
    expect(await harness.store.head(planKey(run, step))).toBeNull();
    await harness.plan(step, 2);
    const plan = await readPlan(harness.store, { run, step });
    expect(plan).toMatchObject({ control: 2, optimizer: { learning_rates: [0.25] } });
    await expect(harness.plan(step, 0)).rejects.toMatchObject(refusal);
  });

  it('reads each control record only once, because a long run has many', async () => {
    for (let i = 0; i < 5; i++) {
      const change: ControlChange = { kind: 'setHyperparameters', lr: 0.1 + i / 100 };
      await recordControl(harness.orchestrator, { run, owner: 1, updateId: `many-${i}`, change });
    }
    const read = vi.spyOn(harness.store, 'get');
    await harness.plan(step, 5);
    const keys = read.mock.calls.map(([key]) => key).filter((key) => key.startsWith(controlFolder(run)));
    read.mockRestore();
    expect(keys).toEqual([]);
    expect(await readPlan(harness.store, { run, step })).toMatchObject({ control: 5 });
  });

  it('plans with every changed setting, and the step uses these settings only', async () => {
    const sampling = { temperature: 0.7, max_turns: 2, max_input_length: 440, max_generate_length: 4 };
    const clip = { eps_clip_low: 0.1, eps_clip_high: 0.3 };
    const change: ControlChange = {
      ...{ kind: 'setHyperparameters', lr: 0.25, train_batch_size: 1, n_samples_per_prompt: 3 },
      ...{ ckpt_interval: 7, eval_interval: 9, max_sequence_length: 470, ...sampling, ...clip },
    };
    await recordControl(harness.orchestrator, { run, owner: 1, updateId: 'a', change });
    const answer = await harness.plan(step, 1);
    const plan = await readPlan(harness.store, { run, step });
    expect(plan).toMatchObject({
      ...{ control: 1, slots: [{ slot: 0 }], samples_per_slot: 3 },
      sampling: { ...sampling, max_sequence_length: 470 },
      optimizer: { learning_rates: [0.25] },
      loss: clip,
    });
    expect(answer.slots).toBe(1);
    await collect(answer);
    await setOutcome(0, 2, passed);
    expect(await update(answer)).toMatchObject({ applied: true });
    const episodes = await Promise.all([0, 1, 2].map((sample) => episodeAt(0, sample)));
    const lengths = episodes.flatMap(({ turns }) => turns.map(({ start, end }) => end - start));
    expect(Math.max(...lengths)).toBeLessThanOrEqual(4);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  });

  it('plans with the spec’s objective and its changed settings', async () => {
    const other = await startHarness(environments);
    try {
      const trainer = {
        ...(other.spec['trainer'] as object),
        ...{
          policy_loss_type: 'dual_clip',
          loss_reduction: 'seq_mean_token_sum_norm',
          use_entropy_loss: true,
        },
        ...{ advantage_estimator: 'rloo' },
      };
      await other.open({ ...other.spec, trainer });
      await other.advance(lastSftStep);
      const supervised = await readPlan(other.store, { run, step: lastSftStep });
      expect(supervised.loss).toEqual({ kind: 'cross_entropy', reduction: 'token_mean' });
      expect(supervised).not.toHaveProperty('advantages');
      const change: ControlChange = {
        kind: 'setHyperparameters',
        entropy_loss_coef: 0.5,
        max_generate_length: 4,
      };
      await recordControl(other.orchestrator, { run, owner: 1, updateId: 'a', change });
      const plan = await readPlan(other.store, { run, step, plan: (await other.plan(step, 1)).plan });
      expect(plan).toMatchObject({ advantages: { estimator: 'rloo' } });
      expect(plan.loss).toEqual({
        ...{ kind: 'dual_clip', reduction: 'seq_mean_token_sum_norm', max_seq_len: 448 + 4 },
        ...{ eps_clip_low: 0.2, eps_clip_high: 0.2, clip_ratio_c: 3, entropy_weight: 0.5 },
      });
    } finally {
      await other.close();
    }
  });

  it('gives each slot of each step, and each seed of a run, its own world seed', async () => {
    const seeds: number[] = [];
    for (const at of [step, step + 1]) {
      seeds.push(...(await planned(at)).plan.slots.map(({ seed }) => seed));
      await harness.advance(at);
    }
    const other = await startHarness(environments);
    await other.open({ ...other.spec, seed: 6 });
    await other.advance(lastSftStep);
    const record = await readPlan(other.store, { run, step, plan: (await other.plan(step)).plan });
    await other.close();
    if (record.kind !== 'grpo') throw new Error('the step after the warm start is one of GRPO');
    seeds.push(...record.slots.map(({ seed }) => seed));
    expect(new Set(seeds).size).toBe(6);
  });

  it('draws demonstrations by the run’s seed and the phase, each once per epoch', async () => {
    const spec = (seed: number): Record<string, unknown> => {
      const [phase] = harness.spec['warm_start'] as object[];
      const short = { ...phase, updates: 3, mini_batch_size: 4 };
      return { ...harness.spec, seed, warm_start: [short, { ...short, name: 'again' }] };
    };
    const drawn = async (seed: number): Promise<number[][]> => {
      const other = await startHarness(environments);
      await other.open(spec(seed));
      await other.advance(6);
      const plans = await Promise.all(
        [1, 2, 3, 4, 5, 6].map((at) => readPlan(other.store, { run, step: at })),
      );
      await other.close();
      const lines = plans.map((plan) => (plan.kind === 'sft' ? plan.mini_batches.flat() : []));
      return [lines.slice(0, 3).flat(), lines.slice(3).flat()];
    };
    const orders = [...(await drawn(5)), ...(await drawn(6))];
    const everyLine = Array.from({ length: 12 }, (_, line) => line);
    for (const order of orders) expect([...order].sort((a, b) => a - b)).toEqual(everyLine);
    expect(new Set(orders.map(String)).size).toBe(4);
  });

  it('returns the stored plan, even if control has changed since', async () => {
    const { answer } = await planned();
    await recordControl(harness.orchestrator, {
      run,
      owner: 1,
      updateId: 'a',
      change: { kind: 'setHyperparameters', lr: 0.25 },
    });
    expect(await harness.plan(step, 1)).toEqual(answer);
  });

  it('updates its templates’ pass rates from the outcomes of the step before', async () => {
    const { answer, plan } = await planned();
    await collect(answer);
    await setOutcome(0, 0, passed);
    await setOutcome(0, 1, unknown);
    await setOutcome(1, 0, unknown);
    await setOutcome(1, 1, unknown);
    await update(answer);
    const { plan: next } = await planned(step + 1);
    const [first, second] = plan.slots;
    expect(next.curriculum.pass_rates[first?.template ?? '']).toBeCloseTo(0.5 + 0.2 * 0.5, 12);
    expect(next.curriculum.pass_rates[second?.template ?? '']).toBeUndefined();
    // The first GRPO step applied no update, so the warm start's moments must still be cleared.
    expect(next.optimizer.reset_moments).toBe(true);
  });

  it('refuses a damaged update record', async () => {
    await tamper(harness.store, updateKey(run, lastSftStep), (bytes) => bytes.subarray(0, 100));
    await expect(harness.plan(step)).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key: updateKey(run, lastSftStep),
    });
  });
});
