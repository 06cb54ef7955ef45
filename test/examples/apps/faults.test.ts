import { describe, expect, it } from 'vitest';
import { infrastructureFault, modelFault } from '../../../examples/apps/faults.js';

const places = Array.from({ length: 20_000 }, (_, i) => ({ seed: Math.floor(i / 5), turn: i % 5 }));
const share = (hits: boolean[]) => hits.filter(Boolean).length / hits.length;

describe('injected faults', () => {
  it('occur at the given rate, and never at rate 0', () => {
    expect(share(places.map(({ seed, turn }) => modelFault(seed, turn, 0.2) !== null))).toBeCloseTo(0.2, 1.8);
    expect(
      share(places.map(({ seed, turn }) => infrastructureFault(seed, turn, 0, 0.2) !== null)),
    ).toBeCloseTo(0.2, 1.8);
    expect(
      places.some(({ seed, turn }) => modelFault(seed, turn, 0) ?? infrastructureFault(seed, turn, 0, 0)),
    ).toBe(false);
    expect(places.every(({ seed, turn }) => infrastructureFault(seed, turn, 0, 1))).toBe(true);
  });

  it('of one kind do not depend on faults of the other kind, or on faults of the try before', () => {
    const failed = places.filter(({ seed, turn }) => infrastructureFault(seed, turn, 0, 0.2));
    expect(
      share(failed.map(({ seed, turn }) => infrastructureFault(seed, turn, 1, 0.2) !== null)),
    ).toBeCloseTo(0.2, 1);
    expect(share(failed.map(({ seed, turn }) => modelFault(seed, turn, 0.2) !== null))).toBeCloseTo(0.2, 1);
    const kinds = failed.map(({ seed, turn }) => infrastructureFault(seed, turn, 0, 0.2));
    expect(share(kinds.map((kind) => kind === 'drop'))).toBeCloseTo(0.5, 1);
  });

  it('are the same for the same seed, turn and try', () => {
    for (const { seed, turn } of places.slice(0, 100)) {
      expect(infrastructureFault(seed, turn, 2, 0.5)).toBe(infrastructureFault(seed, turn, 2, 0.5));
      expect(modelFault(seed, turn, 0.5)).toBe(modelFault(seed, turn, 0.5));
    }
  });
});
