// Several nodes share the rollouts of one step by ranges of slots.
import { describe, expect, it } from 'vitest';
import { joined, playedElsewhere, sharesOf } from '../../../src/workflows/run/shared-rollouts.js';

const nodes = (count: number): string[] => Array.from({ length: count }, (_, node) => `node-${node}`);

describe('the slots of a step', () => {
  it('are one range for one node, in the activity `collect`', () => {
    expect(sharesOf(8, ['node-0'])).toEqual([{ name: 'collect', slots: [0, 8], node: 'node-0' }]);
  });

  it('are one range if every lease has just ended: the next lease takes it', () => {
    expect(sharesOf(8, [])).toEqual([{ name: 'collect', slots: [0, 8], node: undefined }]);
  });

  it.each([
    [
      8,
      2,
      [
        [0, 4],
        [4, 8],
      ],
    ],
    [
      8,
      3,
      [
        [0, 3],
        [3, 6],
        [6, 8],
      ],
    ],
    [
      5,
      4,
      [
        [0, 2],
        [2, 3],
        [3, 4],
        [4, 5],
      ],
    ],
  ])('%i of them, for %i nodes, are consecutive ranges', (slots, count, ranges) => {
    expect(sharesOf(slots, nodes(count)).map((share) => share.slots)).toEqual(ranges);
  });

  it('are each in one range, in sizes that differ by at most one, for any number of nodes', () => {
    for (let slots = 1; slots <= 70; slots++) {
      for (let count = 1; count <= 64; count++) {
        const shares = sharesOf(slots, nodes(count));
        const all = shares.flatMap(({ slots: [from, to] }) =>
          Array.from({ length: to - from }, (_, slot) => from + slot),
        );
        expect(all).toEqual(Array.from({ length: slots }, (_, slot) => slot));
        const sizes = shares.map(({ slots: [from, to] }) => to - from);
        expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
        expect(sizes).toHaveLength(Math.min(slots, count));
      }
    }
  });

  it('have one activity for each node, so attempt records never share a key', () => {
    expect(sharesOf(3, nodes(3)).map(({ name }) => name)).toEqual(['collect', 'collect-2', 'collect-3']);
  });
});

describe('the results of all nodes', () => {
  const nothing = { graded: 0, unknown: 0, mean_reward: null, tokens: 10, seconds: 1, kept: null };
  const kept = { seconds: 0.2 };
  const first = { node: 'a', sampled: { ...nothing, graded: 1, unknown: 1, mean_reward: 1, kept } };
  const second = { node: 'b', sampled: { ...nothing, graded: 3, mean_reward: 0, tokens: 5, seconds: 4 } };

  it('make one step: its mean is over all episodes, its time that of the slowest node', () => {
    expect(joined([first, second])).toMatchObject({
      ...{ graded: 4, unknown: 1, mean_reward: 0.25, tokens: 15, seconds: 4, kept },
    });
  });

  it('have no mean if nothing was graded', () => {
    expect(joined([{ node: 'a', sampled: nothing }]).mean_reward).toBeNull();
    expect(joined([first, { node: 'b', sampled: nothing }]).mean_reward).toBe(1);
  });

  it('include the time of the nodes that do not make the update', () => {
    expect(playedElsewhere(joined([first, second]), 'a')).toBe(4);
    expect(playedElsewhere(joined([first, second]), 'c')).toBe(5);
    expect(playedElsewhere(joined([first]), 'a')).toBe(0);
    expect(playedElsewhere(null, 'a')).toBe(0);
  });
});
