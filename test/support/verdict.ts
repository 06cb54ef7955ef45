// What a run has become, from the store alone, and the demand that it equals an undisturbed one.
import { expect } from 'vitest';
import { auditRun } from '../../src/activities/audit-run.js';
import { episodeKey } from '../../src/store/layout.js';
import type { ObjectStore } from '../../src/store/object-store.js';
import { requireRecord } from '../../src/store/records.js';
import { lastCommittedStep, readPlan, readState, readUpdate } from '../../src/store/run-records.js';

export interface Verdict {
  violations: unknown[];
  /** Digests of all states, the base model's first. */
  states: string[];
  /** Steps that changed the weights. */
  applied: number;
  /** What was sampled and what came of it, in order. */
  episodes: {
    step: number;
    slot: number;
    sample: number;
    tokens: number[];
    logprobs: number[];
    outcome: unknown;
  }[];
}

export async function verdictOf(store: ObjectStore, run: string): Promise<Verdict> {
  const { violations } = await auditRun(store, run);
  const last = await lastCommittedStep(store, run);
  const verdict: Verdict = { violations, states: [], applied: 0, episodes: [] };
  for (let step = 0; step <= last; step++) {
    verdict.states.push(await readState(store, run, step));
    if (step === 0) continue;
    if ((await readUpdate(store, run, step)).identity.applied === true) verdict.applied += 1;
    const { record: plan } = await readPlan(store, run, step);
    if (plan.kind !== 'grpo') continue;
    for (const { slot } of plan.slots) {
      for (let sample = 0; sample < plan.samples_per_slot; sample++) {
        const { tokens, logprobs, outcome } = await requireRecord(
          store,
          episodeKey(run, step, slot, sample),
          'episode',
        );
        verdict.episodes.push({ step, slot, sample, tokens, logprobs, outcome });
      }
    }
  }
  return verdict;
}

/** No violation, and every state, token, log-probability and outcome as in the undisturbed run. */
export async function expectEqual(store: ObjectStore, run: string, undisturbed: Verdict): Promise<void> {
  const verdict = await verdictOf(store, run);
  expect(verdict.violations).toEqual([]);
  expect(verdict.states).toEqual(undisturbed.states);
  expect(verdict.episodes).toEqual(undisturbed.episodes);
}
