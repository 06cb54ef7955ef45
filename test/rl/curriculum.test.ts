import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { advancePassRates, drawDemonstrations, drawTasks, roundedUp } from '../../src/rl/curriculum.js';

type DrawInput = Parameters<typeof drawTasks>[0];

/** Pools of one environment, `x`. */
const poolsOf = (sizes: Record<string, number>): DrawInput['pools'] =>
  new Map(Object.entries(sizes).map(([name, size]) => [name, { size, env: 'x' }]));

/** One pool for each environment. */
const environments = (sizes: Record<string, number>): DrawInput['pools'] =>
  new Map(Object.entries(sizes).map(([name, size]) => [name, { size, env: name }]));

const draw = (overrides: Partial<DrawInput> = {}) =>
  drawTasks({
    pools: poolsOf({ easy: 100, open: 100 }),
    state: { pass_rates: { easy: 1, open: 0.5 }, cursors: {} },
    count: 2000,
    rules: { floor: 0.05 },
    seed: 11,
    step: 3,
    ...overrides,
  });

/** Number of slots that each pool got. */
function slotsOf({ tasks }: ReturnType<typeof draw>): Record<string, number> {
  const slots: Record<string, number> = {};
  for (const { pool } of tasks) slots[pool] = (slots[pool] ?? 0) + 1;
  return slots;
}

describe('the curriculum', () => {
  test('draws pools in proportion to p(1−p) + floor', () => {
    expect((slotsOf(draw())['open'] ?? 0) / 2000).toBeCloseTo(0.3 / 0.35, 1);
  });

  test('draws tasks uniformly with floor 0', () => {
    const pools = poolsOf({ easy: 300, open: 100 });
    expect((slotsOf(draw({ pools, rules: { floor: 0 } }))['easy'] ?? 0) / 2000).toBeCloseTo(0.75, 1);
  });

  // These are the tasks of the version before max_share, weights and balance. Plans of that version are made again by an audit, so they must
  // never change.
  test('draws what it drew before it knew environments', () => {
    const { tasks, cursors } = draw({
      pools: new Map([
        ['write', { size: 3, env: 'a' }],
        ['find', { size: 5, env: 'b' }],
        ['Book', { size: 40, env: 'a' }],
      ]),
      state: { pass_rates: { find: 0.9, write: 0.25 }, cursors: { write: 2, find: 4 } },
      count: 12,
    });
    expect(tasks.map(({ pool, index }) => `${pool} ${index}`)).toEqual([
      ...['Book 1', 'Book 17', 'find 1', 'find 2', 'write 2', 'Book 24'],
      ...['find 4', 'Book 13', 'write 0', 'find 0', 'find 3', 'find 4'],
    ]);
    expect(cursors).toEqual({ write: 4, find: 11, Book: 4 });
  });

  test('multiplies the weights of an environment by its factor', () => {
    const pools = environments({ a: 100, b: 100, c: 200 });
    const drawn = slotsOf(draw({ pools, rules: { floor: 0, weights: { a: 3 } } }));
    expect((drawn['a'] ?? 0) / 2000).toBeCloseTo(3 / 6, 1);
    expect((drawn['c'] ?? 0) / 2000).toBeCloseTo(2 / 6, 1);
  });

  test('gives no pool more than its largest share, and still fills the step', () => {
    const state = { pass_rates: { a: 0.5, b: 0, c: 1 }, cursors: {} };
    const pools = environments({ a: 5, b: 5, c: 5 });
    const drawn = (count: number) =>
      slotsOf(draw({ pools, state, count, rules: { floor: 0.001, maxShare: 0.4 } }));
    expect(drawn(1000)['a']).toBe(400);
    // 0.4 · 7 is 2.8.
    expect(drawn(7)['a']).toBe(3);
    for (const maxShare of [1 / 3, 0.34, 0.5, 1])
      for (let count = 1; count < 40; count++) {
        const { tasks } = draw({ pools, state, count, rules: { floor: 0.001, maxShare } });
        expect(tasks).toHaveLength(count);
        expect(Math.max(...Object.values(slotsOf({ tasks, cursors: {} })))).toBeLessThanOrEqual(
          Math.ceil(maxShare * count),
        );
      }
  });

  test('gives a pool no slot more for a product that rounds above a whole number', () => {
    const pools = environments({ a: 500, b: 500, c: 500 });
    const state = { pass_rates: { a: 0.5, b: 0, c: 1 }, cursors: {} };
    const most = (maxShare: number, count: number): number | undefined =>
      slotsOf(draw({ pools, state, count, rules: { floor: 0.001, maxShare } }))['a'];
    expect(0.55 * 100).toBeGreaterThan(55);
    expect(most(0.55, 100)).toBe(55);
    expect(most(0.56, 25)).toBe(14);
  });

  test('rounds shares up as exact fractions', () => {
    const share = fc
      .integer({ min: 1, max: 5 })
      .chain((digits) =>
        fc.record({ digits: fc.constant(digits), numerator: fc.integer({ min: 1, max: 10 ** digits }) }),
      );
    fc.assert(
      fc.property(share, fc.integer({ min: 1, max: 20_000 }), ({ digits, numerator }, slots) => {
        const whole = 10n ** BigInt(digits);
        const product = BigInt(numerator) * BigInt(slots);
        const exact = Number((product + whole - 1n) / whole);
        // As a spec has it: a decimal fraction.
        const written = Number(`${numerator}e-${digits}`);
        expect(roundedUp(written, slots)).toBe(exact);
      }),
      { numRuns: 5_000 },
    );
    for (let pools = 1; pools <= 300; pools++)
      for (let slots = 1; slots <= 300; slots++)
        expect(roundedUp(1 / pools, slots)).toBe(Math.ceil(slots / pools));
  });

  test('gives equal shares to pools that are too few for the largest share', () => {
    const pools = environments({ a: 5, b: 5, c: 5 });
    const state = { pass_rates: { a: 0.5, b: 0, c: 1 }, cursors: {} };
    for (const [maxShare, count] of [
      [0.1, 8],
      [0.1, 9],
      [0.3, 32],
      [1e-9, 1],
    ] as const) {
      const { tasks } = draw({ pools, state, count, rules: { floor: 0.001, maxShare } });
      expect(Math.max(...Object.values(slotsOf({ tasks, cursors: {} })))).toBeLessThanOrEqual(
        Math.ceil(count / 3),
      );
      // A wave of further slots keeps to it, too.
      const earlier = { tasks, planned: count };
      const wave = draw({ pools, state, count, rules: { floor: 0.001, maxShare }, earlier });
      const all = slotsOf({ tasks: [...tasks, ...wave.tasks], cursors: {} });
      expect(Math.max(...Object.values(all))).toBeLessThanOrEqual(Math.ceil((2 * count) / 3));
    }
  });

  test('in balance, gives environments equal numbers of slots in each step, and the same in the long run', () => {
    const pools = new Map([
      ['a1', { size: 50, env: 'a' }],
      ['a2', { size: 900, env: 'a' }],
      ...environments({ b: 7, c: 300 }),
    ]);
    const total: Record<string, number> = {};
    for (let step = 1; step <= 30; step++) {
      const { tasks } = draw({ pools, step, count: 4, rules: { floor: 0, balanced: true } });
      const mine: Record<string, number> = { a: 0, b: 0, c: 0 };
      for (const { pool } of tasks) {
        const env = pools.get(pool)?.env as string;
        mine[env] = (mine[env] ?? 0) + 1;
        total[env] = (total[env] ?? 0) + 1;
      }
      expect(Object.values(mine).sort()).toEqual([1, 1, 2]);
    }
    expect(total).toEqual({ a: 40, b: 40, c: 40 });
  });

  test('depends only on seed, step and state', () => {
    expect(draw()).toEqual(draw());
    expect(draw({ step: 4 }).tasks).not.toEqual(draw().tasks);
    expect(draw({ seed: 12 }).tasks).not.toEqual(draw().tasks);
  });

  test('draws no task twice in a step while its pool has another task', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 0, max: 30 }),
        fc.integer(),
        (size, cursor, seed) => {
          const state = { pass_rates: {}, cursors: { only: cursor } };
          const { tasks } = draw({
            pools: poolsOf({ only: size }),
            state,
            count: size,
            seed: Math.abs(seed),
          });
          expect(new Set(tasks.map(({ index }) => index)).size).toBe(size);
        },
      ),
    );
  });

  test('gives every task of a pool once per epoch, each time in another order', () => {
    const pools = poolsOf({ only: 20 });
    const epoch = (cursor: number) =>
      draw({ pools, state: { pass_rates: {}, cursors: { only: cursor } }, count: 20 }).tasks.map(
        ({ index }) => index,
      );
    expect([...epoch(0)].sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i));
    expect(epoch(20)).not.toEqual(epoch(0));
  });

  test('moves pass rates by a fifth of the difference, using graded outcomes only', () => {
    const rates = advancePassRates({ a: 0.5 }, [
      { pool: 'a', rewards: [1, null, 1] },
      { pool: 'b', rewards: [null, null] },
    ]);
    expect(rates).toEqual({ a: 0.6 });
  });

  test('uses all demonstrations of a phase before it uses any of them again', () => {
    const batches = drawDemonstrations({
      size: 24,
      miniBatchSize: 8,
      firstUpdate: 3,
      count: 3,
      seed: 1,
      phase: 'drill',
    });
    expect(new Set(batches.flat()).size).toBe(24);
    const later = { size: 24, miniBatchSize: 8, firstUpdate: 4, count: 1, seed: 1, phase: 'drill' };
    expect(drawDemonstrations(later)[0]).toEqual(batches[1]);
  });
});
