// The contents of a batch, computed by hand: the place of each token, its advantage, and the bytes of the whole file. The digest here is a
// promise to all existing runs: a batch that is sealed again must have the same bytes as before (R2, R10).
import { MockActivityEnvironment } from '@temporalio/testing';
import { beforeEach, describe, expect, test } from 'vitest';
import type { RunData } from '../../../src/data/run-data.js';
import { sealBatch, type SealedBatch } from '../../../src/activities/step/seal-batch.js';
import type { EpisodeRecord, Outcome } from '../../../src/spec/records/episode.js';
import type { GrpoPlan } from '../../../src/spec/records/plan.js';
import { decodeBatchFile } from '../../../src/store/files/batch-file.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import { batchKey, episodeKey, planKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { adoptOrCreate } from '../../../src/store/records/records.js';
import { atOnceIn } from '../../store/objects/conformance.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { ownFolder } from '../../support/scratch-folder.js';

const run = 'tiny';
const step = 1;
const base = recordsOfAllKinds();
const graded = (value: number): Outcome => ({ status: 'graded', value });
const valueOf = (outcome: Outcome) => (outcome.status === 'graded' ? outcome.value : null);
const unknown: Outcome = { status: 'unknown', reason: 'call', failures: 3 };
const range = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);

/** Two slots of one environment share their first ten tokens. Between them are another environment's slot and a group without a signal. */
const slots = [
  { env_key: 'tracker', prompt: [...range(10, 10), 100], outcomes: [graded(1), graded(0), graded(0.5)] },
  { env_key: 'booking', prompt: [50, 51], outcomes: [unknown, graded(1), graded(0)] },
  { env_key: 'tracker', prompt: [...range(10, 10), 102], outcomes: [graded(1), unknown, graded(1)] },
  { env_key: 'tracker', prompt: [...range(10, 10), 103], outcomes: [graded(0), graded(1), graded(1)] },
];
const plan: GrpoPlan = {
  ...(base.plan as GrpoPlan),
  advantages: { estimator: 'grpo', norm_by_std: true, deviation: 'population', eps: 0.1 },
  slots: slots.map(({ env_key }, slot) => ({
    slot,
    task_key: `t${slot}`,
    env_key,
    template: 'find',
    seed: slot,
  })),
  samples_per_slot: 3,
};

/**
 * An episode that samples two tokens, reads 900 tokens from its tool, and samples a third. All rollouts have different sampled tokens and
 * log-probs.
 */
function episode(slot: number, sample: number, change: Partial<EpisodeRecord> = {}): EpisodeRecord {
  const { env_key, prompt, outcomes } = slots[slot] as (typeof slots)[number];
  const [start, first] = [prompt.length, 1000 + 100 * slot + 10 * sample];
  return {
    ...base.episode,
    plan: recordDigest(plan),
    slot,
    sample,
    env_key,
    task_key: `t${slot}`,
    outcome: outcomes[sample] as Outcome,
    tokens: [...prompt, first, first + 1, 900, first + 2],
    prompt_length: start,
    turns: [
      { policy_step: 0, start, end: start + 2, tool: 'search' },
      { policy_step: 0, start: start + 3, end: start + 4 },
    ],
    logprobs: logprobsOf(slot, sample),
    ...change,
  };
}
/** Log-probs that float32 represents exactly. */
const logprobsOf = (slot: number, sample: number) =>
  range(1, 3).map((n) => -(16 * slot + 4 * sample + n) / 64);

let folder: string;
let store: ObjectStore;
beforeEach(async () => {
  folder = ownFolder();
  store = await openStore(`dir:${folder}`);
});

async function seal(episodes: EpisodeRecord[], by = plan, from = store) {
  await adoptOrCreate(store, planKey(run, step), 'plan', by);
  // Written in reverse order, because records arrive in any order.
  for (const one of [...episodes].reverse()) {
    await adoptOrCreate(store, episodeKey(run, step, one.slot, one.sample), 'episode', one);
  }
  // A GRPO batch without waves is made from the plan and the episodes alone.
  const unread = {} as RunData;
  const { batch } = await new MockActivityEnvironment({ activityId: 'seal' }).run((): Promise<SealedBatch> =>
    sealBatch(from, by, unread),
  );
  return { batch, ...decodeBatchFile((await store.get(batchKey(run, step)))!, batchKey(run, step)) };
}
const allEpisodes = () => slots.flatMap((_, slot) => range(0, 3).map((sample) => episode(slot, sample)));

describe('the batch of twelve episodes', () => {
  const learning = [
    [0, 0],
    [0, 1],
    [0, 2],
    [1, 1],
    [1, 2],
    [3, 0],
    [3, 1],
    [3, 2],
  ] as const;

  test('stores common beginnings once, keeps the samples in order, and leaves out a group without a signal', async () => {
    const { arrays } = await seal(allEpisodes());
    const sampled = (slot: number, sample: number) => {
      const first = 1000 + 100 * slot + 10 * sample;
      return [first, first + 1, 900];
    };
    expect([...arrays.tokens]).toEqual([
      ...range(10, 10),
      ...[100, ...sampled(0, 0), ...sampled(0, 1), ...sampled(0, 2)],
      ...[103, ...sampled(3, 0), ...sampled(3, 1), ...sampled(3, 2)],
      ...[50, 51, ...sampled(1, 1), ...sampled(1, 2)],
    ]);
    expect([...arrays.target_tokens]).toEqual(
      learning.flatMap(([slot, sample]) => range(1000 + 100 * slot + 10 * sample, 3)),
    );
    expect([...arrays.target_rows]).toEqual([
      ...[10, 11, 13, 10, 14, 16, 10, 17, 19],
      ...[31, 32, 34, 31, 35, 37],
      ...[20, 21, 23, 20, 24, 26, 20, 27, 29],
    ]);
    expect([...arrays.target_samples]).toEqual(learning.flatMap((_, sample) => [sample, sample, sample]));
    const leaves = (parent: number, count: number) => range(0, count).flatMap(() => [parent, 3, 0]);
    expect([...arrays.nodes]).toEqual([
      ...[-1, 10, 0],
      ...[0, 1, 0, ...leaves(1, 3)],
      ...[0, 1, 0, ...leaves(5, 3)],
      ...[-1, 2, 0, ...leaves(9, 2)],
    ]);
  });

  test('gives each token (reward − mean) / (population deviation + eps) of its group', async () => {
    const { arrays } = await seal(allEpisodes());
    const [halves, thirds] = [Math.sqrt(1 / 6) + 0.1, Math.sqrt(2 / 9) + 0.1];
    const expected = [
      ...[0.5 / halves, -0.5 / halves, 0],
      // The unknown sample does not count as 0: the mean of 1 and 0 is a half.
      ...[0.5 / 0.6, -0.5 / 0.6],
      ...[-2 / 3 / thirds, 1 / 3 / thirds, 1 / 3 / thirds],
    ].flatMap((advantage) => [advantage, advantage, advantage]);
    for (const [index, advantage] of arrays.target_advantages.entries())
      expect(advantage).toBeCloseTo(expected[index] as number, 6);
    expect(arrays.target_advantages).toHaveLength(expected.length);
    expect(Math.max(...arrays.target_advantages)).toBeCloseTo(0.983_77, 4);
  });

  test('gives each token the log-prob with which it was sampled', async () => {
    const { arrays } = await seal(allEpisodes());
    const sampled = learning.flatMap(([slot, sample]) => logprobsOf(slot, sample));
    expect([...arrays.target_old_logprobs!]).toEqual(sampled);
    expect(arrays.target_rollout_logprobs).toBeUndefined();
  });

  test('with importance sampling, leaves the old log-probs of the ratios to the engine', async () => {
    const weighted = { ...plan, loss: { ...plan.loss, tis_cap: 2 } };
    const episodes = allEpisodes().map((one) => ({ ...one, plan: recordDigest(weighted) }));
    const { arrays } = await seal(episodes, weighted);
    expect([...arrays.target_rollout_logprobs!]).toEqual(
      learning.flatMap(([slot, sample]) => logprobsOf(slot, sample)),
    );
    expect(arrays.target_old_logprobs).toBeUndefined();
  });

  test('keeps every outcome; an unknown outcome is null', async () => {
    const { identity } = await seal(allEpisodes());
    expect(identity.outcomes).toEqual([
      [1, 0, 0.5],
      [null, 1, 0],
      [1, null, 1],
      [0, 1, 1],
    ]);
    expect(identity.loss_tokens).toEqual([24]);
  });

  test('with reinforce++, contains every graded sample, because groups do not matter', async () => {
    const by = { ...plan, advantages: { estimator: 'reinforce++' as const } };
    const episodes = allEpisodes().map((one) => ({ ...one, plan: recordDigest(by) }));
    const { arrays, identity } = await seal(episodes, by);
    expect(identity.loss_tokens).toEqual([3 * 10]);
    // Rewards 1 0 .5 | 1 0 | 1 1 | 0 1 1, with three tokens each.
    const mean = 6.5 / 10;
    const scale = Math.sqrt((3 * (6 * 0.35 ** 2 + 3 * 0.65 ** 2 + 0.15 ** 2)) / 29 + 1e-8);
    expect(arrays.target_advantages[0]).toBeCloseTo((1 - mean) / scale, 6);
    expect(arrays.target_advantages[3]).toBeCloseTo((0 - mean) / scale, 6);
    expect(arrays.target_advantages.reduce((sum, value) => sum + value, 0)).toBeCloseTo(0, 5);
  });

  test('with overlong filtering, has no loss for an episode that a length limit cut off, but counts its value', async () => {
    const limits = { ...plan.sampling, max_generate_length: 3, max_sequence_length: 16 };
    const digest = 'd'.repeat(64);
    const by: GrpoPlan = {
      ...plan,
      schema: 'longhaul.plan/4',
      ...{ run_digest: digest, control_digest: digest, owner_digest: digest },
      ...{ sampling: limits, overlong_filtering: true },
    };
    const played = allEpisodes();
    const change = (slot: number, sample: number, more: (one: EpisodeRecord) => Partial<EpisodeRecord>) => {
      const at = slot * 3 + sample;
      played[at] = { ...(played[at] as EpisodeRecord), ...more(played[at] as EpisodeRecord) };
    };
    change(0, 0, () => ({ stop_reason: 'length' }));
    // The last turn has as many tokens as a turn may have.
    change(0, 1, ({ tokens, prompt_length: start }) => ({
      ...{ stop_reason: 'max_turns', tokens: tokens.filter((token) => token !== 900) },
      turns: [{ policy_step: 0, start, end: start + 3 }],
    }));
    // Its last allowed token ended the episode, so it was not cut off.
    change(1, 1, ({ tokens, prompt_length: start }) => ({
      ...{ stop_reason: 'done', tokens: tokens.filter((token) => token !== 900) },
      turns: [{ policy_step: 0, start, end: start + 3 }],
    }));
    change(3, 0, () => ({ stop_reason: 'max_turns' }));
    // The transcript is full.
    change(3, 1, ({ tokens, turns, logprobs }) => ({
      ...{ stop_reason: 'max_turns', tokens: [...tokens, 7], logprobs: [...logprobs, -1] },
      turns: turns.map((turn, index) => (index === 1 ? { ...turn, end: turn.end + 1 } : turn)),
    }));
    const of = (one: GrpoPlan) => played.map((episode) => ({ ...episode, plan: recordDigest(one) }));
    const filtered = await seal(of(by), by);
    expect(filtered.identity.loss_tokens).toEqual([15]);
    expect(filtered.identity.outcomes).toEqual(slots.map(({ outcomes }) => outcomes.map(valueOf)));
    const kept = [
      [0, 2],
      [1, 1],
      [1, 2],
      [3, 0],
      [3, 2],
    ] as const;
    expect([...filtered.arrays.target_old_logprobs!]).toEqual(
      kept.flatMap(([slot, sample]) => logprobsOf(slot, sample)),
    );
    // (0.5 − 0.5) and (1 − 0.5): the mean is over all three values of slot 0, and both of slot 1.
    expect([...filtered.arrays.target_advantages.slice(0, 4)].map((value) => Math.abs(value))).toEqual([
      ...[0, 0, 0],
      expect.closeTo(0.5 / 0.6, 5) as number,
    ]);
  });

  test('has these bytes, for ever', async () => {
    expect((await seal(allEpisodes())).batch).toBe(
      'a76808ef67a2c2bcc0d65896a4e250962007d5ba04e1e4365aeee246696ec0b3',
    );
  });
});

test('an episode whose environment never opened has no prompt, and gets no prompt from its group', async () => {
  const nothing = { tokens: [], prompt_length: 0, turns: [], logprobs: [], stop_reason: 'unknown' as const };
  const { arrays } = await seal(
    allEpisodes().map((one) => (one.slot === 1 && one.sample === 0 ? { ...one, ...nothing } : one)),
  );
  expect([...arrays.tokens.slice(-8)]).toEqual([50, 51, 1110, 1111, 900, 1120, 1121, 900]);
});

test.each(['plan', 'state'] as const)(
  'an episode of another %s is named and never sealed (R8)',
  async (member) => {
    const other = 'e'.repeat(64);
    const episodes = allEpisodes().map((one) =>
      one.slot === 2 && one.sample === 1 ? { ...one, [member]: other } : one,
    );
    const key = episodeKey(run, step, 2, 1);
    const sealing = seal(episodes);
    await expect(sealing).rejects.toMatchObject({ name: 'UnreadableRecord', key });
    await expect(sealing).rejects.toThrow(new RegExp(`${member} ${other}.*longhaul quarantine ${key}`));
    expect(await store.head(batchKey(run, step))).toBeNull();
  },
);

test('a large step’s episodes are read a limited number at a time', async () => {
  const large = { ...plan, samples_per_slot: 16 };
  const rollouts = slots.flatMap((_, slot) => range(0, 16).map((sample) => ({ slot, sample })));
  const episodes = rollouts.map(({ slot, sample }) =>
    episode(slot, sample, { plan: recordDigest(large), outcome: graded(sample % 2) }),
  );
  const { watched, most } = atOnceIn(store);
  const { identity } = await seal(episodes, large, watched);
  expect(identity.outcomes[3]).toEqual(range(0, 16).map((sample) => sample % 2));
  expect(most()).toBeGreaterThan(1);
  expect(most()).toBeLessThanOrEqual(32);
});
