// Tests how figures of faults are computed: from the times of steps, and from the requests to engines.
import { describe, expect, it } from 'vitest';
import { stallShare } from '../../bench/durability/disturbed-run.js';
import { effectiveTime } from '../../bench/durability/effective-time.js';
import { episodeKey } from '../../src/store/record-keys.js';
import { type Computed, type Death, episodesInFlight, lostWork } from '../support/lost-work.js';

const commitsEvery = (seconds: readonly number[]): { step: number; at: number }[] => {
  let at = 1_000;
  return [{ step: 0, at }, ...seconds.map((one, index) => ({ step: index + 1, at: (at += one * 1000) }))];
};

describe('the effective time of a run', () => {
  it('is the time of all steps minus the extra time of the disturbed steps', () => {
    const commits = commitsEvery([10, 10, 15, 10, 10]);
    expect(effectiveTime(commits, [25_000])).toEqual({
      ...{ steps: 5, disturbed: 1, ettr: 50 / 55, step_seconds: 10 },
      costs: [
        { step: 3, seconds: 5 },
        { step: 4, seconds: 0 },
      ],
    });
  });

  it('does not change if the machine itself becomes slower or faster', () => {
    const [slow, fast] = [Array.from({ length: 12 }, () => 14), Array.from({ length: 12 }, () => 10)];
    const [slowStruck, fastStruck] = [19, 15];
    const slower = effectiveTime(commitsEvery([...fast, ...slow, slowStruck, ...slow]), [
      12 * 24_000 + 2_000,
    ]);
    expect(slower.costs.map(({ seconds }) => seconds)).toEqual([5, 0]);
    const faster = effectiveTime(commitsEvery([...slow, ...fast, fastStruck, ...fast]), [
      12 * 24_000 + 2_000,
    ]);
    expect(faster.costs.map(({ seconds }) => seconds)).toEqual([5, 0]);
  });

  it('includes the extra time of the step after the disturbed one', () => {
    const { ettr } = effectiveTime(commitsEvery([10, 10, 15, 12, 10]), [25_000]);
    expect(ettr).toBeCloseTo(50 / 57);
  });

  it('is refused for a run without faults, and for a run without calm steps', () => {
    expect(() => effectiveTime(commitsEvery([10, 10, 10]), [])).toThrow(/3 of 3 steps were calm/);
    expect(() => effectiveTime(commitsEvery([10, 10, 10]), [2_000, 12_000])).toThrow(/0 of 3/);
  });
});

describe('the stall of checkpoints', () => {
  const commits = commitsEvery([10, 10, 10]);

  it('is the time that updates waited for a writer, divided by the time of all undisturbed steps', () => {
    const stalls = new Map([
      [1, 500],
      [3, 5_000],
    ]);
    expect(stallShare({ commits, stalls }, [25_000])).toBe(500 / 20_000);
  });

  it('is refused if no undisturbed step recorded its wait', () => {
    expect(() => stallShare({ commits, stalls: new Map([[3, 100]]) }, [25_000])).toThrow(
      /no undisturbed step recorded how long/,
    );
  });
});

describe('lost work', () => {
  const turn = (at: number, sample: number, tokens: number, step = 1, state = 'held'): Computed => ({
    ...{ at, verb: 'generate', state, domain: 'train', step, slot: 0, sample, tokens },
  });
  const update = (at: number, stepId: string): Computed => ({ at, verb: 'update', stepId });
  const death = (at: number, ...committed: string[]): Death => ({ at, committed: new Set(committed) });

  it('counts turns and updates that were requested again after a death', () => {
    const computed = [
      ...[turn(1, 0, 100), turn(2, 0, 140), turn(3, 1, 100), update(4, 'a')],
      ...[turn(11, 0, 140), turn(12, 1, 100), turn(13, 1, 130), update(14, 'a'), update(15, 'b')],
    ];
    expect(lostWork(computed, [death(10)])).toEqual([{ turns: 1, episodes: 2, updates: 1, replayed: 0 }]);
  });

  it('includes updates of committed steps, which count as replayed', () => {
    const computed = [update(1, 'a'), update(2, 'b'), update(11, 'a'), update(12, 'b')];
    expect(lostWork(computed, [death(10, 'a')])).toMatchObject([{ updates: 2, replayed: 1 }]);
  });

  it('counts every turn of an episode that starts again', () => {
    const before = [turn(1, 0, 100), turn(2, 0, 140), turn(3, 0, 180)];
    expect(
      lostWork([...before, ...before.map((one) => ({ ...one, at: one.at + 10 }))], [death(10)]),
    ).toMatchObject([{ turns: 3, episodes: 1, updates: 0 }]);
  });

  it('does not include an episode that is played again with another state, as in evaluations', () => {
    const computed = [turn(1, 0, 100), turn(11, 0, 100, 1, 'the next one')];
    expect(lostWork(computed, [death(10)])).toMatchObject([{ turns: 0, episodes: 0, updates: 0 }]);
  });

  it('belongs to the death before it, and does not include new work', () => {
    const computed = [
      turn(1, 0, 100),
      turn(11, 0, 100),
      turn(21, 0, 100),
      turn(22, 0, 140),
      turn(23, 0, 100, 2),
    ];
    expect(lostWork(computed, [death(10), death(20)])).toMatchObject([
      { turns: 1, episodes: 1, updates: 0 },
      { turns: 1, episodes: 1, updates: 0 },
    ]);
  });

  describe('the episodes at a death', () => {
    const key = (sample: number): string => episodeKey('r', 1, 0, sample);

    it('are in flight if they were sampled before the death and recorded after it', () => {
      const computed = [turn(1, 0, 100), turn(2, 1, 100), turn(12, 2, 100)];
      const recorded = new Map([
        [key(0), 9],
        [key(1), 15],
        [key(2), 16],
      ]);
      expect(episodesInFlight(computed, 10, 'r', recorded)).toBe(1);
      expect(episodesInFlight(computed, 17, 'r', recorded)).toBe(0);
    });
  });
});
