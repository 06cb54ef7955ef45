import { expect, test } from 'vitest';
import fc from 'fast-check';
import { keptCheckpoints, type Wanted } from '../../../src/store/collection/retention.js';

const tens = [10, 20, 30, 40, 50, 60];
const settings = { keep_last: 1, keep_every: 0, keep_best: 0 };

function kept(checkpoints: readonly number[], wanted: Partial<Wanted>): number[] {
  const all = keptCheckpoints(checkpoints, {
    retention: settings,
    needed: [],
    evaluated: { best: [], unranked: [] },
    ...wanted,
  });
  return [...all.keys()].sort((a, b) => a - b);
}

test.each<{ what: string; checkpoints?: number[]; wanted: Partial<Wanted>; stays: number[] }>([
  { what: 'the newest ones', wanted: { retention: { ...settings, keep_last: 3 } }, stays: [40, 50, 60] },
  {
    what: 'as many as there are, where more are asked for',
    wanted: { retention: { ...settings, keep_last: 99 } },
    stays: tens,
  },
  {
    what: 'one at every multiple',
    wanted: { retention: { ...settings, keep_every: 20 } },
    stays: [20, 40, 60],
  },
  {
    what: 'the first after a multiple that has none',
    checkpoints: [10, 22, 28, 41, 60],
    wanted: { retention: { ...settings, keep_every: 20 } },
    stays: [22, 41, 60],
  },
  {
    what: 'those of the best evaluations, from where the state is computed if it was not saved',
    wanted: { retention: { ...settings, keep_best: 2 }, evaluated: { best: [35, 20, 10], unranked: [] } },
    stays: [20, 30, 60],
  },
  {
    what: 'beside the best ones, a step of unknown rank: it may be better than all of them',
    wanted: {
      retention: { ...settings, keep_best: 1 },
      evaluated: { best: [35, 10], unranked: [20, 45] },
    },
    stays: [20, 30, 40, 60],
  },
  {
    what: 'no step of unknown rank, where the best ones do not stay either',
    wanted: { evaluated: { best: [35], unranked: [20] } },
    stays: [60],
  },
  {
    what: 'the one that a fork begins at',
    wanted: { needed: [{ step: 29, by: 'fork' }] },
    stays: [20, 60],
  },
  {
    what: 'nothing more for a fork that left before the first of them',
    wanted: { needed: [{ step: 3, by: 'fork' }] },
    stays: [60],
  },
  { what: 'nothing, where there is nothing', checkpoints: [], wanted: {}, stays: [] },
])('what stays: $what', ({ checkpoints = tens, wanted, stays }) => {
  expect(kept(checkpoints, wanted)).toEqual(stays);
});

test('a checkpoint that stays has all its reasons listed', () => {
  const reasons = keptCheckpoints(tens, {
    retention: { keep_last: 2, keep_every: 50, keep_best: 1 },
    needed: [{ step: 55, by: 'tiny~2' }],
    evaluated: { best: [50], unranked: [25] },
  });
  expect(reasons.get(50)).toEqual(['needed by tiny~2', 'keep_last', 'keep_every', 'keep_best']);
  expect(reasons.get(20)).toEqual(['its evaluation has no result that can be read']);
  expect(reasons.get(60)).toEqual(['newest']);
});

test('with any settings the newest checkpoint stays, and each needed state is computed from the same checkpoint as before', () => {
  const step = fc.integer({ min: 1, max: 80 });
  const number = fc.integer({ min: 0, max: 9 });
  fc.assert(
    fc.property(
      fc.uniqueArray(step, { minLength: 1 }),
      fc.array(step),
      fc.record({ keep_last: fc.integer({ min: 1, max: 9 }), keep_every: number, keep_best: number }),
      (unsorted, needs, retention) => {
        const checkpoints = unsorted.sort((a, b) => a - b);
        const stays = kept(checkpoints, { retention, needed: needs.map((one) => ({ step: one, by: 'x' })) });
        expect(checkpoints).toEqual(expect.arrayContaining(stays));
        expect(stays.at(-1)).toBe(checkpoints.at(-1));
        const before = (list: readonly number[], at: number) => list.findLast((one) => one <= at);
        for (const need of needs) expect(before(stays, need)).toBe(before(checkpoints, need));
      },
    ),
  );
});
