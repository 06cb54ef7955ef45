// A run's evaluation with several samples a task: what is played, and pass@k of the graded samples in the record, the projection and the audit.
import { beforeAll, expect, it } from 'vitest';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { summarise } from '../../../src/activities/evaluation/suite-evaluation.js';
import type { Outcome } from '../../../src/spec/records/episode.js';
import type { EvaluationResult } from '../../../src/spec/records/evaluation-records.js';
import { AuditReport } from '../../../src/store/audit/audit-report.js';
import { auditEvaluations } from '../../../src/store/audit/evaluation-audit.js';
import { isSuiteOf } from '../../../src/store/evaluations/suite-comparability.js';
import {
  evaluationEpisodeKey,
  evaluationResultKey,
  evaluationSuiteKey,
  runEvaluationKey,
  trajectoriesFolder,
  trajectoryResultsKey,
} from '../../../src/store/record-keys.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { counting, reviseRecord, run, tamper } from '../fixture.js';
import { harness, useSharedHarness } from '../own-harness.js';

const step = 1;
const samples = 3;

useSharedHarness();
beforeAll(async () => {
  const { spec } = harness;
  await harness.open({
    ...spec,
    generator: { ...(spec.generator as object), eval_n_samples_per_prompt: samples, eval_temperature: 0.8 },
  });
  await harness.advance(step);
});

const evaluate = (execution: number, deps = harness.node) =>
  harness.attempt(`step-000001/evaluate-final-${execution}`, () =>
    evaluateState(deps, { run, owner: 1, step, suite: 'final' }),
  );

it('plays each sample once, with random numbers of its own', async () => {
  const { deps, calls } = counting(harness.node);
  const first = await evaluate(1, deps);
  expect(first).toMatchObject({ graded: 9, unknown: 0, pass_at_1: 0, pass_at_k: { 2: 0, 3: 0 } });
  expect(await evaluate(2, deps)).toEqual(first);
  expect(calls.generate).toBe(9);
  const { store } = harness;
  const suite = await requireRecord(store, evaluationSuiteKey(first.state, first.suite), 'suite');
  expect(suite).toMatchObject({ name: 'final', samples_per_task: samples, sampling: { temperature: 0.8 } });
  const { record } = await harness.node.runs.get(run);
  const result = await requireRecord(store, evaluationResultKey(first.state, first.suite), 'evaluation');
  expect(await isSuiteOf(store, record, result)).toBe(true);
  const single = { ...record, spec: { ...record.spec, generator: { ...record.spec.generator } } };
  delete single.spec.generator.eval_n_samples_per_prompt;
  expect(await isSuiteOf(store, single, result)).toBe(false);
  const tokens = await Promise.all(
    [0, 1, 2].map(async (sample) => {
      const key = evaluationEpisodeKey(first.state, first.suite, 0, sample);
      return (await requireRecord(store, key, 'episode')).tokens.join();
    }),
  );
  expect(new Set(tokens).size).toBe(samples);
});

it('counts pass@k over graded samples only, and leaves a k out for which many tasks have too few', async () => {
  const result = await withOutcomes([
    [1, 0, 0],
    [0.5, 0, null],
    [0, 1, null],
  ]);
  expect(result).toMatchObject({
    schema: 'longhaul.evaluation/3',
    samples_per_task: samples,
    graded: 7,
    unknown: 2,
    pass_at_1: 2 / 7,
    pass_at_k: { 2: expect.closeTo(5 / 9, 12) as number },
    pass_at_n: 1,
  });
  const { pass_at_1, pass_at_k, pass_at_n } = result;
  expect(result.environments['tracker']).toMatchObject({ pass_at_1, pass_at_k, pass_at_n });
  const projected = await harness.store.get(trajectoryResultsKey(run, step));
  expect(JSON.parse(Buffer.from(projected ?? []).toString())).toEqual({
    ...Object.fromEntries(
      ['all', 'tracker'].flatMap((scope) => [
        [`eval/${scope}/pass_at_1`, pass_at_1],
        [`eval/${scope}/pass_at_2`, pass_at_k?.[2]],
        [`eval/${scope}/pass_at_n`, 1],
      ]),
    ),
    'eval/num_samples': 7,
    'eval/tracker/unknown': 2,
  });
});

it('leaves a k out for which no task has enough graded samples', async () => {
  const result = await withOutcomes([
    [1, 0, null],
    [0, 0, null],
    [1, 1, null],
  ]);
  expect(result.pass_at_k).toEqual({ 2: 2 / 3 });
  expect(await audited(result)).toEqual([]);
});

it('is found by an audit if its figures are not those of its episodes', async () => {
  const result = await withOutcomes([
    [1, 0, 0],
    [0, 0, 0],
    [0, 0, 0],
  ]);
  expect(await audited(result)).toEqual([]);
  const key = evaluationResultKey(result.state, result.suite);
  await reviseRecord(harness.store, key, 'evaluation', (record) => ({
    ...record,
    pass_at_k: { ...record.pass_at_k, 3: 0.5 },
    pass_at_n: 0.5,
  }));
  expect(await audited(result)).toEqual([
    expect.stringContaining('pass_at_k.3 is 0.5, but its episodes give 0.33'),
    expect.stringContaining('pass_at_n is 0.5, but its episodes give 0.33'),
  ]);
});

/** Plays the suite, then counts it again with these outcomes by task and sample; null is an unknown one. */
async function withOutcomes(outcomes: (number | null)[][]): Promise<EvaluationResult> {
  const { store } = harness;
  const { state, suite } = await evaluate(3);
  for (const [slot, values] of outcomes.entries())
    for (const [sample, value] of values.entries()) {
      const outcome: Outcome =
        value === null ? { status: 'unknown', reason: 'open', failures: 3 } : { status: 'graded', value };
      const key = evaluationEpisodeKey(state, suite, slot, sample);
      await reviseRecord(store, key, 'episode', (record) => ({ ...record, outcome }));
    }
  const result = evaluationResultKey(state, suite);
  for (const key of [result, runEvaluationKey(run, step, 'final')]) await tamper(store, key, () => null);
  for await (const { key } of store.list(trajectoriesFolder(run, step))) await store.delete(key);
  const { graded } = await evaluate(4);
  expect(graded).toBe(outcomes.flat().filter((value) => value !== null).length);
  return requireRecord(store, result, 'evaluation');
}

async function audited({ state }: EvaluationResult): Promise<string[]> {
  const report = new AuditReport(run);
  await auditEvaluations(harness.store, [state], summarise, new Set(), report);
  return report.violations.filter(({ rule }) => rule === 'R25').map(({ problem }) => problem);
}
