// The check of the weights on a Tinker server: which sequences are asked for, and how near their log-probs must be.
import { describe, expect, test } from 'vitest';
import type { Datum } from '../../../src/engine/tinker/wire.js';
import {
  checkedLogprobs,
  checkedSequences,
  compared,
  differenceText,
  forCheck,
  isSame,
  recordedCheck,
  tellsApart,
} from '../../../src/policy/served/weight-check.js';

/** A sequence of `length` tokens, of which the last `targets` are trained on. */
function datum(length: number, targets: number, advantage: number): Datum {
  const at = (value: number) => Array.from({ length }, (_, place) => (place >= length - targets ? value : 0));
  const floats = (data: number[]) => ({ dtype: 'float32' as const, data });
  const tokens = Array.from({ length }, (_, place) => place);
  return {
    tokens,
    inputs: {
      target_tokens: { dtype: 'int64', data: tokens },
      weights: floats(at(1)),
      logprobs: floats(at(-1)),
      advantages: floats(at(advantage)),
    },
  };
}

describe('the sequences of a check', () => {
  const [still, long, short] = [datum(4, 2, 0), datum(90, 70, 1), datum(20, 10, -1)];

  test('are the shortest that move the weights, however the step’s requests were divided', () => {
    expect(checkedSequences([[still, long], [short]])).toEqual([short, long]);
    expect(checkedSequences([[long], [short, still]])).toEqual([short, long]);
  });

  test('end with enough places, and are at most four', () => {
    expect(checkedSequences([[long, datum(95, 70, 1)]])).toEqual([long]);
    expect(checkedSequences([Array.from({ length: 9 }, () => short)])).toHaveLength(4);
  });

  test('are any if none moves the weights', () => {
    expect(checkedSequences([[still]])).toEqual([still]);
  });

  test('are sent without what a loss alone needs', () => {
    expect(forCheck([short]).map(({ inputs }) => Object.keys(inputs))).toEqual([
      ['target_tokens', 'weights'],
    ]);
  });

  test('give their log-probs at the trained places, and at no more than 256 of them', () => {
    const logprobs = Array.from({ length: 4 }, (_, at) => -at);
    expect(checkedLogprobs([still], [{ logprobs }])).toEqual([-2, -3]);
    expect(
      checkedLogprobs([datum(300, 300, 1)], [{ logprobs: new Array<number>(300).fill(-1) }]),
    ).toHaveLength(256);
  });
});

describe('weights', () => {
  const check = recordedCheck([-1, -1], [-1.1, -0.9]);
  const isNear = (found: number[], again = false) => isSame(compared(check, found, 1e-5, again));

  test('are the same within a tenth of what the step moved; within half, if it was applied again', () => {
    expect(check).toEqual({ logprobs: [-1.1, -0.9], moved: 0.1 });
    expect(isNear([-1.1, -0.9])).toBe(true);
    expect(isNear([-1.105, -0.9])).toBe(true);
    expect(isNear([-1.13, -0.93])).toBe(false);
    expect(isNear([-1.13, -0.93], true)).toBe(true);
    expect(isNear([-1, -1], true)).toBe(false);
  });

  test('are not the same if a log-prob is missing or not finite', () => {
    expect(isNear([-1.1])).toBe(false);
    expect(isNear([-1.1, NaN])).toBe(false);
    expect(differenceText({ step: 3, moved: 0.1 }, compared(check, [NaN, 0], 1e-5))).toContain(
      'infinitely far',
    );
  });

  test('are told from those before the step if it moved them by more than the server’s own tolerance', () => {
    expect(tellsApart(check, 1e-5)).toBe(true);
    expect(tellsApart(check, 0.06)).toBe(false);
    expect(isSame(compared(check, [-1, -1], 0.2))).toBe(true);
  });
});
