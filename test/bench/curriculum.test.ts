// The simulation behind the figures of `npm run bench -- curriculum`: it gives the same figures everywhere, so it can be a test.
import { expect, test } from 'vitest';
import { measureCurriculum } from '../../bench/learning/curriculum.js';

test('a curriculum by environment gives 1.5 times as many groups with signal as uniform draws', async () => {
  const { uniform, by_env, gain } = await measureCurriculum();
  // 8 samples that pass at p differ with probability 1 − p⁸ − (1−p)⁸: 0.216 at 0.97, 0 at 0, 0.942 at 0.3, 0.983 at 0.6.
  expect(uniform).toBeCloseTo((2 * 0.216 + 0.942 + 0.983) / 5, 1);
  expect(by_env).toBeLessThan(0.97);
  expect(gain).toBeGreaterThanOrEqual(1.5);
});
