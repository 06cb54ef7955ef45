// Which waves follow from a step's outcomes, and which groups its batch takes.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { nextWave, wavesOf } from '../../../../src/activities/step/waves.js';
import type { RunData } from '../../../../src/data/run-data.js';
import type { GrpoPlan } from '../../../../src/spec/records/plan.js';
import { groupsInBatch, type WaveRecord, withWaves } from '../../../../src/spec/records/wave.js';
import { recordsOfAllKinds } from '../../../store/fixtures.js';

const keys = Array.from({ length: 40 }, (_, index) => `t${index}`);
const data = {
  record: { seed: 7 },
  trainTasks: { template: new Map([['find', keys]]), env: new Map([['tracker', keys]]) },
  taskByKey: new Map(keys.map((task_key) => [task_key, { task_key, env_key: 'tracker', template: 'find' }])),
} as unknown as Pick<RunData, 'record' | 'trainTasks' | 'taskByKey'>;

function planWith(more: Partial<NonNullable<GrpoPlan['dynamic_sampling']>> = {}, groups = 8): GrpoPlan {
  const plan = recordsOfAllKinds().plan as GrpoPlan;
  return {
    ...plan,
    slots: keys.slice(0, groups).map((task_key, slot) => ({
      ...{ slot, task_key, env_key: 'tracker', template: 'find', seed: slot },
    })),
    dynamic_sampling: { type: 'filter', max_sample_batches: 3, wanted: groups, floor: 0.1, ...more },
  };
}

const good = [1, 0];
const bad = [0, 0];
/** Outcomes of a step in which so many of the first groups have a signal. */
const outcomes = (withSignal: number, all = 8) =>
  Array.from({ length: all }, (_, slot) => (slot < withSignal ? good : bad));

describe('a wave', () => {
  test.each([
    ['nothing is missing', 8, null],
    ['half is missing, and half has a signal', 4, 8],
    ['a quarter is missing', 6, 3],
    ['no group has a signal', 0, 8],
  ])('has as many slots as promise the missing groups: %s', (_, withSignal, slots) => {
    const wave = nextWave(planWith(), [], outcomes(withSignal), data);
    expect(wave?.slots.length ?? null).toBe(slots);
  });

  test('numbers its slots on, gives each a seed of its own, and repeats no task of the step', () => {
    const plan = planWith();
    const [first, second] = wavesOf(plan, [...outcomes(4), ...outcomes(1), ...outcomes(8)], data);
    const { slots, curriculum } = withWaves(plan, [first!, second!]);
    expect(slots.map(({ slot }) => slot)).toEqual(slots.map((_, index) => index));
    expect(new Set(slots.map(({ task_key }) => task_key)).size).toBe(slots.length);
    expect(new Set(slots.map(({ seed }) => seed)).size).toBe(slots.length);
    expect(curriculum.cursors).toEqual(second!.cursors);
  });

  test('is not planned beyond the limit, nor without dynamic sampling', () => {
    const plan = planWith({ max_sample_batches: 2 });
    const [first, ...more] = wavesOf(plan, [...outcomes(0), ...outcomes(0)], data);
    expect(more).toEqual([]);
    expect(nextWave(plan, [first!], [...outcomes(0), ...outcomes(0)], data)).toBeNull();
    const { dynamic_sampling: _, ...plain } = plan;
    expect(nextWave(plain, [], outcomes(0), data)).toBeNull();
  });

  test('of replace is planned only while too few groups have a signal', () => {
    const plan = planWith({ type: 'replace', wanted: 3 });
    expect(nextWave(plan, [], outcomes(3), data)).toBeNull();
    expect(nextWave(plan, [], outcomes(2), data)?.slots).toHaveLength(4);
  });

  test('give a pool no slot more than its largest share', () => {
    const pools = new Map(
      ['a', 'b', 'c'].map((name) => [name, Array.from({ length: 400 }, (_, index) => `${name}${index}`)]),
    );
    const many = {
      record: { seed: 7 },
      trainTasks: { template: pools, env: pools },
      taskByKey: new Map(
        [...pools].flatMap(([name, own]) =>
          own.map((task_key) => [task_key, { task_key, env_key: 'tracker', template: name }] as const),
        ),
      ),
    } as unknown as typeof data;
    const plan: GrpoPlan = {
      ...planWith({ max_share: 0.55, floor: 0.0001, wanted: 50 }),
      slots: pools
        .get('a')!
        .slice(0, 50)
        .map((task_key, slot) => ({
          ...{ slot, task_key, env_key: 'tracker', template: 'a', seed: slot },
        })),
      curriculum: { pass_rates: { a: 0.5, b: 0, c: 1 }, cursors: { a: 50 } },
    };
    const all = outcomes(0, 100);
    const most = (waves: readonly WaveRecord[]): number =>
      withWaves(plan, waves).slots.filter(({ template }) => template === 'a').length;
    expect(most(wavesOf(plan, all, many).slice(0, 1))).toBe(55);
  });

  test('follows from the outcomes before it alone', () => {
    const group = fc.array(fc.constantFrom(0, 1, 0.5, null), { minLength: 2, maxLength: 2 });
    fc.assert(
      fc.property(fc.array(group, { minLength: 24, maxLength: 24 }), (all) => {
        const plan = planWith();
        let played = 8;
        const waves = [];
        for (;;) {
          const wave = nextWave(plan, waves, all.slice(0, played), data);
          if (!wave) break;
          waves.push(wave);
          played += wave.slots.length;
        }
        expect(wavesOf(plan, all.slice(0, played), data)).toEqual(waves);
        expect(waves.length).toBeLessThanOrEqual(2);
      }),
    );
  });
});

describe('a batch', () => {
  test('of filter takes the first groups with a signal, as many as the plan has slots', () => {
    const all = [bad, good, bad, good, good, [null, 1], good];
    expect(groupsInBatch(planWith({}, 3), all)).toEqual([1, 3, 4]);
    expect(groupsInBatch(planWith({}, 8), all)).toEqual([1, 3, 4, 6]);
  });

  test('of replace repeats them in turn, if they are enough', () => {
    const plan = planWith({ type: 'replace', wanted: 2 }, 5);
    expect(groupsInBatch(plan, [bad, good, bad, good, bad])).toEqual([1, 3, 1, 3, 1]);
    expect(groupsInBatch(plan, [bad, bad, bad, good, bad])).toEqual([3]);
    expect(groupsInBatch(plan, [bad, bad, bad, bad, bad])).toEqual([]);
  });

  test('without dynamic sampling takes every group', () => {
    const { dynamic_sampling: _, ...plain } = planWith({}, 3);
    expect(groupsInBatch(plain, [bad, good, bad])).toEqual([0, 1, 2]);
  });
});
