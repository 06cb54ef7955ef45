// Tests the second implementation of advantages and masks on sealed batches of the product: unchanged, and with one error each.
import { beforeAll, expect, test } from 'vitest';
import { buildBatch } from '../../../src/activities/step/build-batch.js';
import type { BatchArrays } from '../../../src/spec/records/batch.js';
import type { EpisodeRecord, Outcome } from '../../../src/spec/records/episode.js';
import type { GrpoPlan } from '../../../src/spec/records/plan.js';
import { decodeBatchFile } from '../../../src/store/files/batch-file.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { wrongTargets } from './batch-audit.js';

const unknown: Outcome = { status: 'unknown', reason: 'call', failures: 1 };
/**
 * Rewards of three groups: one with a learning signal and an unknown outcome, one without a signal, one with rewards other than 0 and 1.
 */
const values = [
  [1, 0, null, 0.25],
  [1, 1, 1, null],
  [-3, 0.5, 0.5, 2],
];

const step: { plan: GrpoPlan; episodes: EpisodeRecord[]; arrays: BatchArrays } = {
  ...{ plan: null!, episodes: [], arrays: null! },
};

beforeAll(async () => {
  const { plan, episode } = recordsOfAllKinds();
  if (plan.kind !== 'grpo') throw new Error('the plan is expected to be a GRPO plan');
  const [first] = plan.slots;
  step.plan = { ...plan, slots: values.map((_, slot) => ({ ...first!, slot })), samples_per_slot: 4 };
  const groups = values.map((group, slot) =>
    group.map((value, sample): EpisodeRecord => {
      // All prompts begin with the same tokens, so that packing can share them.
      const prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 20 + slot];
      const sampled = [30 + sample, 31, 40, 41, 32 + slot];
      return {
        ...episode,
        ...{ slot, sample, tokens: [...prompt, ...sampled], prompt_length: prompt.length },
        outcome: value === null ? unknown : { status: 'graded', value },
        // The two tokens between the turns are a tool result.
        turns: [
          { policy_step: 0, start: 10, end: 12, tool: 'search' },
          { policy_step: 0, start: 14, end: 15 },
        ],
        logprobs: [-0.5 - sample / 8, -0.25, -1 - slot],
      };
    }),
  );
  step.episodes = groups.flat();
  const { bytes } = await buildBatch(step.plan, {
    episodes: groups,
    data: () => Promise.reject(new Error('a GRPO batch needs none')),
  });
  step.arrays = decodeBatchFile(bytes, 'batch').arrays;
});

test('a sealed batch has exactly the targets that its episodes give', () => {
  expect(step.arrays.target_rows).toHaveLength(3 * (3 + 4));
  expect(wrongTargets(step.plan, step.episodes, step.arrays)).toEqual([]);
});

test.each<{ what: string; break: (arrays: BatchArrays) => void; problem: string }>([
  {
    what: 'a wrong advantage',
    break: ({ target_advantages }) => (target_advantages[4]! *= 1.01),
    problem: 'a target has the advantage',
  },
  {
    what: 'division of the advantages by the sample standard deviation',
    break: ({ target_advantages }) => {
      for (const [index, value] of target_advantages.entries())
        target_advantages[index] = value * Math.sqrt(3 / 4);
    },
    problem: 'a target has the advantage',
  },
  {
    what: 'a wrong old log-prob',
    break: ({ target_old_logprobs }) => (target_old_logprobs![2]! -= 0.125),
    problem: 'a target has the old log-prob',
  },
  {
    what: 'a target token that the environment wrote',
    break: ({ target_tokens }) => (target_tokens[2] = 40),
    problem: 'a target reads',
  },
  {
    what: 'a target predicted one row too late',
    break: ({ target_rows }) => (target_rows[1]! += 1),
    problem: 'a target reads',
  },
  {
    what: 'a wrong token in a prompt',
    break: ({ tokens }) => (tokens[3] = 77),
    problem: 'a target reads',
  },
  {
    what: 'a node below the wrong parent',
    break: ({ nodes }) => {
      const child = Array.from({ length: nodes.length / 3 }, (_, node) => node).findLast(
        (node) => nodes[3 * node]! > 0,
      )!;
      nodes[3 * child] = 0;
    },
    problem: 'a target reads',
  },
])('$what is found', ({ break: harm, problem }) => {
  const arrays = structuredClone(step.arrays);
  harm(arrays);
  expect(wrongTargets(step.plan, step.episodes, arrays)).toEqual([expect.stringContaining(problem)]);
});

test('targets from an episode with an unknown outcome are found', () => {
  const episodes = step.episodes.map((episode) =>
    episode.slot === 0 && episode.sample === 3 ? { ...episode, outcome: unknown } : episode,
  );
  expect(wrongTargets(step.plan, episodes, step.arrays)).toEqual(['it has 21 targets, its episodes give 18']);
});
