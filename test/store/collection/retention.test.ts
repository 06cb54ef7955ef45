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
  {
    what: 'the newest checkpoints (keep_last)',
    wanted: { retention: { ...settings, keep_last: 3 } },
    stays: [40, 50, 60],
  },
  {
    what: 'all checkpoints if keep_last is larger than their number',
    wanted: { retention: { ...settings, keep_last: 99 } },
    stays: tens,
  },
  {
    what: 'the checkpoint at every multiple of keep_every',
    wanted: { retention: { ...settings, keep_every: 20 } },
    stays: [20, 40, 60],
  },
  {
    what: 'the next checkpoint after a multiple that has none',
    checkpoints: [10, 22, 28, 41, 60],
    wanted: { retention: { ...settings, keep_every: 20 } },
    stays: [22, 41, 60],
  },
  {
    what: 'the checkpoints of the best evaluations; for a state without one, the checkpoint from which it is computed',
    wanted: { retention: { ...settings, keep_best: 2 }, evaluated: { best: [35, 20, 10], unranked: [] } },
    stays: [20, 30, 60],
  },
  {
    what: 'besides the best steps, the steps of unknown rank: they may be better than all others',
    wanted: {
      retention: { ...settings, keep_best: 1 },
      evaluated: { best: [35, 10], unranked: [20, 45] },
    },
    stays: [20, 30, 40, 60],
  },
  {
    what: 'no step of unknown rank if keep_best is 0',
    wanted: { evaluated: { best: [35], unranked: [20] } },
    stays: [60],
  },
  {
    what: 'the checkpoint from which the first state of a fork is computed',
    wanted: { needed: [{ step: 29, by: 'fork' }] },
    stays: [20, 60],
  },
  {
    what: 'no further checkpoint for a fork that begins before the first checkpoint',
    wanted: { needed: [{ step: 3, by: 'fork' }] },
    stays: [60],
  },
  { what: 'nothing if there are no checkpoints', checkpoints: [], wanted: {}, stays: [] },
])('a collection keeps $what', ({ checkpoints = tens, wanted, stays }) => {
  expect(kept(checkpoints, wanted)).toEqual(stays);
});

test('a checkpoint that stays has all its reasons listed', () => {
  const reasons = keptCheckpoints(tens, {
    retention: { keep_last: 2, keep_every: 50, keep_best: 1 },
    needed: [{ step: 55, by: 'tiny~2' }],
    evaluated: { best: [50], unranked: [25] },
  });
  expect(reasons.get(50)).toEqual(['needed by tiny~2', 'keep_last', 'keep_every', 'keep_best']);
  expect(reasons.get(20)).toEqual(['the result of its evaluation cannot be read']);
  expect(reasons.get(60)).toEqual(['newest']);
});

test('with any settings, the newest checkpoint stays, and each needed state is still computed from the same checkpoint', () => {
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
