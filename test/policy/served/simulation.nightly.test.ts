// The schedules after those of simulation.slow.test.ts, up to 1,000,000: each night another part, or those of LONGHAUL_SIMULATION_SEEDS=FIRST..LAST.
import { expect, test } from 'vitest';
import { simulateMany } from './simulation/many-schedules.js';

const [first, last] = [10_001, 1_000_000];
const parts = 20;
const dayMs = 86_400_000;
const timeoutMs = 12 * 3_600_000;

test(
  'each schedule ends with each batch once in the weights, or blocked and said',
  { timeout: timeoutMs },
  async () => {
    const [from, to] = seeds();
    const { right, blocked, spoiled } = await simulateMany(from, to);
    expect(right + blocked + spoiled).toBe(to - from + 1);
  },
);

function seeds(): [number, number] {
  const wanted = /^(\d+)\.\.(\d+)$/.exec(process.env['LONGHAUL_SIMULATION_SEEDS'] ?? '');
  if (wanted) return [Number(wanted[1]), Number(wanted[2])];
  const size = Math.ceil((last - first + 1) / parts);
  const from = first + (Math.floor(Date.now() / dayMs) % parts) * size;
  return [from, Math.min(last, from + size - 1)];
}
