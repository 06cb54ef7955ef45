// Changes the outcomes of the audited run's last evaluation.
import { expect } from 'vitest';
import { summarise } from '../../src/activities/evaluation/suite-evaluation.js';
import type { Outcome } from '../../src/spec/records/episode.js';
import * as layout from '../../src/store/record-keys.js';
import { requireRecord } from '../../src/store/records/records.js';
import { audited, type Doctored, evalResult } from './audit/doctored-run.js';

export const unknown: Outcome = { status: 'unknown', reason: 'open_failed', failures: 3 };
export const passed: Outcome = { status: 'graded', value: 1 };

/** `outcomes`: one for each of the two tasks. The result is computed again from them; `pass_at_1` then replaces its pass rate. */
export async function evaluated(store: Doctored, outcomes: Outcome[], pass_at_1?: number): Promise<void> {
  const { state, suite: digest } = audited.evaluation;
  const suite = await requireRecord(store.store, layout.evaluationSuiteKey(state, digest), 'suite');
  expect(outcomes).toHaveLength(suite.tasks.length);
  const episodes = outcomes.map(async (outcome, slot) => {
    const key = layout.evaluationEpisodeKey(state, digest, slot, 0);
    await store.edit(key, 'episode', (record) => {
      record.outcome = outcome;
    });
    return requireRecord(store.store, key, 'episode');
  });
  const counted = summarise(await Promise.all(episodes), suite, digest, state);
  await store.edit(evalResult(), 'evaluation', (result) => {
    Object.assign(result, counted, pass_at_1 === undefined ? {} : { pass_at_1 });
  });
}
