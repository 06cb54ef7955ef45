// Folds the episodes of an evaluation into one file: every reader still finds them at their keys.
import { expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { collect } from '../../../src/store/collection/collection.js';
import {
  batchKey,
  evaluationEpisodesFolder,
  foldedBatchKey,
  foldedEvaluationKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { readBatch } from '../../../src/store/runs/stored-batch.js';
import { counting, run } from '../../activities/fixture.js';
import { copy, harness, keysOf, last, useFinishedRun } from './gc-fixture.js';

useFinishedRun();

async function contents(store: ObjectStore, folder: string): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const name of await store.listFolder(folder)) {
    const bytes = await store.get(`${folder}${name}`);
    found.set(name, Buffer.from(bytes ?? []).toString('base64'));
  }
  return found;
}

test('a folded evaluation is read, audited and adopted as before, and so are compressed batches', async () => {
  const evaluated = await harness.attempt(`step-${String(last).padStart(6, '0')}/evaluate-final`, () =>
    evaluateState(harness.node, { run, step: last, owner: 1, suite: 'final' }),
  );
  const { store } = await copy();
  const folder = evaluationEpisodesFolder(evaluated.state, evaluated.suite);
  const before = await contents(store, folder);
  expect(before.size).toBe(3);
  const batches = await Promise.all([1, last].map((step) => readBatch(store, run, step)));
  const times = new Map<string, number>();
  for await (const { key, modified } of store.list(folder)) times.set(key, modified.getTime());

  const done = await collect(store, run, {
    retention: { keep_last: 1e6, keep_every: 0, keep_best: 0 },
    ...{ graceMs: 0, by: 'test', wait: () => Promise.resolve() },
  });
  const { state, suite } = evaluated;
  expect(done).toMatchObject({ evaluations: [{ state, suite }], batches: [1, 2, 3, 4, 5, 6], left: [] });

  const raw = store.unfolded;
  expect(await raw.listFolder(folder)).toEqual([]);
  expect(await raw.head(foldedEvaluationKey(state, suite))).not.toBeNull();
  expect(await contents(store, folder)).toEqual(before);
  for await (const { key, modified } of store.list(folder)) expect(modified.getTime()).toBe(times.get(key));
  const [name] = before.keys();
  expect(await store.create(`${folder}${name}`, Buffer.from('another'))).toBe('exists');
  expect(await keysOf(raw, batchKey(run, last))).toEqual([foldedBatchKey(run, last)]);
  expect(await Promise.all([1, last].map((step) => readBatch(store, run, step)))).toEqual(batches);
  expect((await auditRun(store, run)).violations).toEqual([]);

  await raw.delete(`evals/${state}/${suite}/result.json`);
  const { deps, calls } = counting({ ...harness.node, store });
  const again = await harness.attempt('again', () =>
    evaluateState(deps, { run, step: last, owner: 1, suite: 'final' }),
  );
  expect(again).toMatchObject({ pass_at_1: evaluated.pass_at_1, graded: evaluated.graded });
  expect(calls.generate).toBe(0);
});
