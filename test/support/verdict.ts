// The result of a run, from the store alone, and the check that it equals an undisturbed run.
import { expect } from 'vitest';
import { auditRun } from '../../src/activities/reports/audit-run.js';
import { readStepEpisodes } from '../../src/store/runs/episodes.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { lastCommittedStep, readPlan, readState, readUpdate } from '../../src/store/runs/run-records.js';

export interface Verdict {
  violations: unknown[];
  /** Digests of all states, beginning with the base model. */
  states: string[];
  /** Number of steps that changed the weights. */
  applied: number;
  /** The sampled episodes and their outcomes, in order. */
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
    const { identity } = await readUpdate(store, run, step);
    const { applied, outcomes } = identity;
    if (applied === true) verdict.applied += 1;
    const plan = await readPlan(store, identity);
    if (plan.kind !== 'grpo') continue;
    const episodes = await readStepEpisodes(store, run, step);
    // With waves, a step has more groups than its plan has slots.
    expect(outcomes.length).toBeGreaterThanOrEqual(plan.slots.length);
    expect(episodes).toHaveLength(outcomes.length * plan.samples_per_slot);
    for (const { slot, sample, tokens, logprobs, outcome } of episodes)
      verdict.episodes.push({ step, slot, sample, tokens, logprobs, outcome });
  }
  return verdict;
}

/** Checks that the run has no violation, and the same states, tokens, log-probabilities and outcomes as the undisturbed run. */
export async function expectEqual(store: ObjectStore, run: string, undisturbed: Verdict): Promise<void> {
  const verdict = await verdictOf(store, run);
  expect(verdict.violations).toEqual([]);
  expect(verdict.states).toEqual(undisturbed.states);
  expect(verdict.episodes).toEqual(undisturbed.episodes);
}
