// The results of activities go into the workflow's history: only figures for decisions, never data, however large a run is.
import { describe, expect, it } from 'vitest';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { phaseAt, phasesOf } from '../../../src/activities/run/step-settings.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { evaluationResultKey, updateKey } from '../../../src/store/record-keys.js';
import { readRun } from '../../../src/store/runs/run-records.js';
import { lastSftStep, reviseRecord, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';
import { rewardMetrics } from '../../../src/rl/metrics.js';

useHarness();

const names = Array.from({ length: 100 }, (_, index) => `an-environment-with-a-long-name-${index}`);
const bytesOf = (answer: unknown): number => Buffer.byteLength(JSON.stringify(answer));
const limit = 10 * 1024;

describe('with 100 environments', () => {
  it('an opened run and its plans stay small', async () => {
    const others = names.map((env_key) => ({ env_key, url: 'http://127.0.0.1:8000' }));
    const environmentsOf = [{ env_key: 'tracker' }, ...others];
    const opened = await harness.open({ ...harness.spec, environments: environmentsOf });
    expect(bytesOf(opened)).toBeLessThan(limit);
    expect((await readRun(harness.store, run)).spec.environments).toHaveLength(101);
    await harness.advance(lastSftStep);
    expect(bytesOf(await harness.plan(lastSftStep + 1))).toBeLessThan(limit);
  });

  it('a committed step returns the few figures that are shown; its record keeps all figures', async () => {
    await harness.advance(lastSftStep);
    const metrics = {
      ...rewardMetrics(names.map((env) => ({ env, values: [0, 1, null] }))),
      'policy/final_loss': 0.25,
      'policy/grad_norm': 1,
    };
    expect(bytesOf(metrics)).toBeGreaterThan(limit);
    await reviseRecord(harness.store, updateKey(run, lastSftStep), 'update', (record) => ({
      ...record,
      observed: { ...record.observed, metrics },
    }));
    const reference = harness.reference(await harness.plan(lastSftStep));
    const answer = await harness.attempt('update', () => updatePolicy(harness.node, reference));
    expect(answer.metrics).toEqual({
      'reward/avg_raw_reward': 0.5,
      'policy/final_loss': 0.25,
      'policy/grad_norm': 1,
    });
    expect(bytesOf(answer)).toBeLessThan(1024);
  });

  it('the result of an evaluation stays small too', async () => {
    await harness.advance(1);
    const evaluate = () =>
      harness.attempt('evaluate', () =>
        evaluateState(harness.node, { run, step: 1, owner: 1, suite: 'interval' }),
      );
    const { state, suite } = await evaluate();
    await reviseRecord(harness.store, evaluationResultKey(state, suite), 'evaluation', (record) => ({
      ...record,
      environments: Object.fromEntries(names.map((name) => [name, Object.values(record.environments)[0]!])),
    }));
    expect(bytesOf(await evaluate())).toBeLessThan(1024);
  });
});

describe('the phases of a run', () => {
  it('follow one another without a gap, and each step is in exactly one phase', async () => {
    await harness.open();
    const { spec } = await readRun(harness.store, run);
    const [drill] = spec.warm_start;
    // Five updates, two per step, so the last step of the phase has one update.
    const warm_start = [
      { ...drill!, name: 'a', updates: 5, mini_batches_per_step: 2 },
      { ...drill!, name: 'b', updates: 1 },
    ];
    const long = { ...spec, warm_start };
    expect(phasesOf(long).map(({ name, first, last }) => `${name} ${first}..${last}`)).toEqual([
      'a 1..3',
      'b 4..4',
      'grpo 5..8',
    ]);
    const at = (step: number): string => {
      const phase = phaseAt(long, step);
      return `${phase.kind === 'sft' ? phase.spec.name : 'grpo'} ${phase.index}`;
    };
    expect([1, 3, 4, 5, 8, 9].map(at)).toEqual(['a 0', 'a 2', 'b 0', 'grpo 0', 'grpo 3', 'grpo 4']);
  });
});
