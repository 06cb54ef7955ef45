// 10,000 schedules of runs on a Tinker server, with processes that die, freeze and overlap, and a server that restarts, loses and lies: each
// batch ends once in the weights, or the run is blocked and says why.
import { expect, test } from 'vitest';
import { simulateMany } from './simulation/many-schedules.js';

const schedules = 10_000;

// (simulateMany ends when its processes fall silent.)
const hourMs = 3_600_000;

test(
  'each schedule ends with each batch once in the weights, or blocked and said',
  { timeout: hourMs },
  async () => {
    const summary = await simulateMany(1, schedules);
    console.log(summary);
    const { right, blocked, spoiled } = summary;
    expect(right + blocked + spoiled).toBe(schedules);
  },
);
