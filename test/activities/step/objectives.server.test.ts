// Every objective that a spec can ask for goes through plan, batch and engine: it is applied, and another engine computes the same state
// from the records. The engine's own tests check the values: here, with one update per batch, the ratio is 1, and several objectives have
// the same gradient.
import { describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import type { LossPlan } from '../../../src/spec/records/loss-plan.js';
import { decodeBatchFile } from '../../../src/store/files/batch-file.js';
import { batchKey } from '../../../src/store/record-keys.js';
import { readBase, readUpdate } from '../../../src/store/runs/run-records.js';
import { run } from '../fixture.js';
import { begin, beginCold, planOf, step, take } from './objective-step.js';
import { harness, useHarness } from '../own-harness.js';

useHarness();

/** Takes two GRPO steps from `first` on. The second starts on an engine that has recomputed the first. */
async function twoSteps(first: number): Promise<void> {
  const { state, applied, reason } = await take(harness, first);
  expect({ applied, reason }).toEqual({ applied: true, reason: null });
  const other = harness.secondNode();
  await other.holder.withState(run, first, 'visitor', () => Promise.resolve());
  expect((await other.holder.engine.held())?.state).toBe(state);
  expect(await take(harness, first + 1, { deps: other })).toMatchObject({ applied: true });
  const { metrics } = (await readUpdate(harness.store, run, first)).observed;
  for (const [name, value] of Object.entries(metrics)) expect(value, name).not.toBeNaN();
  // Rollouts and updates compute the same bits.
  expect(metrics['policy/rollout_train_logprob_diff_max']).toBe(0);
  // The entropy is measured even without a bonus.
  expect(metrics['policy/policy_entropy']).toBeGreaterThan(0);
  expect((await auditRun(harness.store, run)).violations).toEqual([]);
}

describe('an objective', () => {
  it.each<[string, LossPlan['kind'], object]>([
    ['the default', 'regular', {}],
    ['dual clip, rloo', 'dual_clip', { policy_loss_type: 'dual_clip', advantage_estimator: 'rloo' }],
    ['GSPO', 'gspo', { policy_loss_type: 'gspo', loss_reduction: 'sequence_mean' }],
    ['CISPO', 'cispo', { policy_loss_type: 'cispo', advantage_deviation: 'sample' }],
    [
      'SAPO',
      'sapo',
      { policy_loss_type: 'sapo', loss_reduction: 'seq_mean_token_sum_norm', weight_decay: 0.1 },
    ],
    ['REINFORCE, maxrl', 'reinforce', { policy_loss_type: 'reinforce', advantage_estimator: 'maxrl' }],
    ['reinforce++', 'regular', { advantage_estimator: 'reinforce++' }],
    ['without std, with tis', 'regular', { grpo_norm_by_std: false, use_tis: true }],
    [
      'with KL and entropy',
      'regular',
      { use_kl_loss: true, kl_estimator_type: 'k2', use_entropy_loss: true },
    ],
  ])('%s is applied, and another engine computes the same bits', async (_, kind, trainer) => {
    await begin(harness, trainer);
    await twoSteps(step);
    expect((await planOf(harness, step)).loss.kind).toBe(kind);
  });
});

describe('truncated importance sampling', () => {
  it('weighs tokens by their log-probs at sampling, and takes ratios against the state before the update', async () => {
    await begin(harness, { use_tis: true, tis_imp_ratio_cap: 1.5 });
    let tokens = 0;
    // Makes the tokens half as likely at sampling, a larger difference than other numerics would cause.
    const change = (record: EpisodeRecord): EpisodeRecord => {
      tokens = record.logprobs.length;
      return { ...record, logprobs: record.logprobs.map((logprob) => logprob - Math.log(2)) };
    };
    expect(await take(harness, step, { change })).toMatchObject({ applied: true });
    expect((await planOf(harness, step)).loss.tis_cap).toBe(1.5);
    const { identity, observed } = await readUpdate(harness.store, run, step);
    const [bytes, key] = [await harness.store.get(batchKey(run, step)), batchKey(run, step)];
    const [learned] = decodeBatchFile(bytes!, key).identity.loss_tokens;
    const { metrics } = observed;
    expect(metrics['policy/tis_imp_ratio']).toBeCloseTo(1 + (0.5 * tokens) / learned!, 5);
    expect(metrics['policy/rollout_train_logprob_diff_max']).toBeCloseTo(Math.log(2), 4);
    expect(metrics['policy/ppo_clip_ratio']).toBe(0);
    const other = harness.secondNode();
    await other.holder.withState(run, step, 'visitor', () => Promise.resolve());
    expect((await other.holder.engine.held())?.state).toBe(identity.state);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  });
});

describe('adapters', () => {
  it('are trained without the base weights, with a KL term against these and with 8-bit moments', async () => {
    const lora = { rank: 4, alpha: 8, targets: ['q_proj', 'down_proj'] };
    await beginCold(harness, { use_kl_loss: true, lr: 0.01 }, { lora, moments: 'int8' });
    await twoSteps(1);
    const { weights } = (await readBase(harness.store, run)).identity;
    expect((await planOf(harness, 1)).reference).toBe(weights);
    // All states have the same base weights.
    expect((await harness.engine.held())?.weights).toBe(weights);
    const kl = async (at: number) =>
      (await readUpdate(harness.store, run, at)).observed.metrics['policy/policy_kl'];
    expect(await kl(1)).toBe(0);
    expect(await kl(2)).toBeGreaterThan(0);
  });
});
