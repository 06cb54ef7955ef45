import { expect, it } from 'vitest';
import { countedPassRate } from '../../src/spec/pass-rate.js';

it('counts the graded episodes, one of them in the singular', () => {
  expect(countedPassRate({ pass_at_1: 0.61, graded: 128 })).toBe('61.0 % of 128 episodes');
  expect(countedPassRate({ pass_at_1: 0, graded: 1 })).toBe('0.0 % of 1 episode');
  expect(countedPassRate({ pass_at_1: null, graded: 0 })).toBe('– (no outcome was graded)');
});
