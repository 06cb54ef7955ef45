import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { advancePassRates, drawDemonstrations, drawTasks } from '../../src/rl/curriculum.js';

const draw = (overrides: Partial<Parameters<typeof drawTasks>[0]> = {}) =>
  drawTasks({
    sizes: new Map([
      ['easy', 100],
      ['open', 100],
    ]),
    state: { pass_rates: { easy: 1, open: 0.5 }, cursors: {} },
    count: 2000,
    floor: 0.05,
    seed: 11,
    step: 3,
    ...overrides,
  });

describe('the curriculum', () => {
  test('draws templates in proportion to p(1−p) + floor', () => {
    const open = draw().tasks.filter(({ template }) => template === 'open').length;
    expect(open / 2000).toBeCloseTo(0.3 / 0.35, 1);
  });

  test('draws tasks uniformly with floor 0', () => {
    const sizes = new Map([
      ['easy', 300],
      ['open', 100],
    ]);
    const easy = draw({ sizes, floor: 0 }).tasks.filter(({ template }) => template === 'easy').length;
    expect(easy / 2000).toBeCloseTo(0.75, 1);
  });

  test('depends only on seed, step and state', () => {
    expect(draw()).toEqual(draw());
    expect(draw({ step: 4 }).tasks).not.toEqual(draw().tasks);
    expect(draw({ seed: 12 }).tasks).not.toEqual(draw().tasks);
  });

  test('draws no task twice in a step while its template has another task', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 0, max: 30 }),
        fc.integer(),
        (size, cursor, seed) => {
          const state = { pass_rates: {}, cursors: { only: cursor } };
          const { tasks } = draw({
            sizes: new Map([['only', size]]),
            state,
            count: size,
            seed: Math.abs(seed),
          });
          expect(new Set(tasks.map(({ index }) => index)).size).toBe(size);
        },
      ),
    );
  });

  test('gives every task of a template once per epoch, each time in another order', () => {
    const sizes = new Map([['only', 20]]);
    const epoch = (cursor: number) =>
      draw({ sizes, state: { pass_rates: {}, cursors: { only: cursor } }, count: 20 }).tasks.map(
        ({ index }) => index,
      );
    expect([...epoch(0)].sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i));
    expect(epoch(20)).not.toEqual(epoch(0));
  });

  test('moves pass rates by a fifth of the difference, using graded outcomes only', () => {
    const rates = advancePassRates({ a: 0.5 }, [
      { template: 'a', rewards: [1, null, 1] },
      { template: 'b', rewards: [null, null] },
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
