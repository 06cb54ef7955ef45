// Truncated importance sampling: a batch sampled by another policy contains that policy's log-probs. The engine weighs each token by
// comparing them with the policy before the update.
import { expect, it } from 'vitest';
import type { NativeEngine } from '../../src/engine/native/native-engine.js';
import { packForest, type PackedForest, type SampleToPack } from '../../src/rl/packing.js';
import type { Digest } from '../../src/spec/records/parts.js';
import {
  applyUpdates,
  generation,
  startEngine,
  tinyModel,
  transcript,
  writeBatch,
} from './engine-fixture.js';

const cap = 2;
const promptLength = 9;

/** Answers to four prompts, in two mini-batches, sampled from this state with their log-probs. */
async function sampled(engine: NativeEngine, state: Digest): Promise<SampleToPack[][]> {
  const samples = await Promise.all(
    [1, 2, 3, 4].map(async (seed): Promise<SampleToPack> => {
      const prompt = transcript(promptLength, seed);
      const key = { seed, domain: 'train', step: 1, slot: 0, sample: seed } as const;
      const { tokens, logprobs } = await engine.generate(generation(state, prompt, { key }));
      const targets = logprobs.map((oldLogprob, at) => ({
        ...{ index: promptLength + at, oldLogprob },
        advantage: seed % 2 === 0 ? 1 : -0.5,
      }));
      return { tokens: [...prompt, ...tokens], targets };
    }),
  );
  return [samples.slice(0, 2), samples.slice(2)];
}

const withSampled = ({ target_old_logprobs, ...rest }: PackedForest) => ({
  ...rest,
  target_rollout_logprobs: target_old_logprobs,
});

it('importance sampling gives an older policy’s tokens truncated weights; ratios are against the state before the update', async () => {
  const engine = startEngine();
  const { state: older } = await engine.loadRandom(tinyModel);
  const batch = await sampled(engine, older);
  const state = await applyUpdates(engine, older, 1, 8);
  const differences: number[] = [];
  const rescored: SampleToPack[][] = [];
  for (const samples of batch) {
    const again: SampleToPack[] = [];
    for (const { tokens, targets } of samples) {
      const scores = await engine.score({ state, tokens, temperature: 1 });
      again.push({
        tokens,
        targets: targets.map((target) => ({ ...target, oldLogprob: scores[target.index - 1]! })),
      });
      differences.push(...targets.map(({ index, oldLogprob }) => scores[index - 1]! - oldLogprob));
    }
    rescored.push(again);
  }
  expect(Math.max(...differences.map(Math.abs))).toBeGreaterThan(0.01);

  const forest = packForest(batch);
  const request = writeBatch(state, 9, batch, withSampled(forest));
  const loss = { ...request.loss, tis_cap: cap };
  const weighed = await engine.update({ ...request, loss });
  const weights = differences.map((difference) => Math.min(Math.exp(difference), cap));
  const mean = weights.reduce((sum, one) => sum + one, 0) / weights.length;
  expect(weighed.metrics['tis_weight']).toBeCloseTo(mean, 5);
  const firstHalf = differences.slice(0, batch[0]!.flatMap(({ targets }) => targets).length);
  expect(weighed.metrics['max_logprob_difference']).toBeCloseTo(Math.max(...firstHalf.map(Math.abs)), 5);

  // An update with the computed log-probs written into its batch gives the same bits. An update without any weights gives other bits.
  const told = { ...packForest(rescored), target_rollout_logprobs: forest.target_old_logprobs };
  const fresh = startEngine();
  await fresh.loadRandom(tinyModel);
  await applyUpdates(fresh, older, 1, 8);
  expect((await fresh.update({ ...writeBatch(state, 9, batch, told), loss })).state).toBe(weighed.state);
  const other = startEngine();
  await other.loadRandom(tinyModel);
  await applyUpdates(other, older, 1, 8);
  const { metrics, state: without } = await other.update(writeBatch(state, 9, batch, forest));
  expect(without).not.toBe(weighed.state);
  expect(metrics).not.toHaveProperty('tis_weight');
});

it('importance sampling has no effect if the state before the update sampled the batch', async () => {
  const engine = startEngine();
  const { state } = await engine.loadRandom(tinyModel);
  const batch = await sampled(engine, state);
  const forest = packForest(batch);
  const plain = writeBatch(state, 1, batch, forest);
  const weighed = writeBatch(state, 1, batch, withSampled(forest));
  const first = await engine.update({ ...weighed, loss: { ...weighed.loss, tis_cap: cap } });
  expect(first.metrics).toMatchObject({ tis_weight: 1, max_logprob_difference: 0 });
  const fresh = startEngine();
  await fresh.loadRandom(tinyModel);
  expect((await fresh.update(plain)).state).toBe(first.state);
});
