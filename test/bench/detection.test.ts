// Tests the detection time of a kill: the time until the server knew that the attempts which the kill ended had failed.
import { describe, expect, it } from 'vitest';
import { knownAfter, type OpenAttempt } from '../../bench/durability/detection.js';

const open = (
  activity: string,
  attempt: number,
  failedAt: number | null = null,
  underWay = true,
): OpenAttempt => ({ activity, attempt, failedAt, underWay, worker: 'node local 1' });
const killedAt = 10_000;

describe('the detection time of a death', () => {
  it('lasts from the kill until the server learned that the attempt had failed', () => {
    const after = [[open('collect', 1)], [open('collect', 2, 10_250, false)], [open('collect', 2, 10_250)]];
    expect(knownAfter(killedAt, [open('collect', 1)], after)).toBe(0.25);
  });

  it('is long if the death is noticed late', () => {
    const late = [[open('collect', 1)], [open('collect', 2, 14_250, false)]];
    expect(knownAfter(killedAt, [open('collect', 1)], late)).toBe(4.25);
  });

  it('lasts until the server learned that the last of several attempts had failed', () => {
    const before = [open('collect', 1), open('evaluate', 3, 4_000)];
    const after = [[open('collect', 2, 10_100), open('evaluate', 3, 4_000)], [open('evaluate', 4, 11_000)]];
    expect(knownAfter(killedAt, before, after)).toBe(1);
  });

  it('ignores attempts that failed before the kill or that completed', () => {
    const before = [open('collect', 2, 9_000), open('save', 1)];
    expect(knownAfter(killedAt, before, [[open('collect', 2, 9_000)], []])).toBeNaN();
  });

  it('lasts until the run cancelled the activities of its lost node, if nobody reported their failure', () => {
    const after = [[open('collect', 1)], []];
    expect(knownAfter(killedAt, [open('collect', 1)], after, new Map([['collect', 19_000]]))).toBe(9);
    expect(knownAfter(killedAt, [open('collect', 1)], after, new Map([['collect', 9_000]]))).toBeNaN();
    expect(knownAfter(killedAt, [open('collect', 1)], after, new Map([['save', 19_000]]))).toBeNaN();
  });

  it('is NaN for a kill that ended no attempt', () => {
    expect(knownAfter(killedAt, [], [])).toBeNaN();
  });
});
