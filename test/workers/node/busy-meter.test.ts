// The busy meter counts time in which at least one call is in flight; parallel calls do not add up.
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { BusyMeter } from '../../../src/workers/node/observed-calls.js';

describe('BusyMeter', () => {
  it('counts parallel calls once', async () => {
    const meter = new BusyMeter();
    const started = performance.now();
    await Promise.all([1, 2, 3].map(() => meter.during(() => delay(30))));
    const wall = performance.now() - started;
    expect(meter.totalMs).toBeGreaterThanOrEqual(29);
    expect(meter.totalMs).toBeLessThanOrEqual(wall);
  });

  it('does not count the time between calls', async () => {
    const meter = new BusyMeter();
    await meter.during(() => delay(10));
    const before = meter.totalMs;
    await delay(20);
    expect(meter.totalMs).toBe(before);
  });

  it('counts a call that is still running', async () => {
    const meter = new BusyMeter();
    const call = meter.during(() => delay(60));
    await delay(20);
    expect(meter.totalMs).toBeGreaterThanOrEqual(19);
    await call;
  });

  it('counts a call that fails, and rethrows its error', async () => {
    const meter = new BusyMeter();
    const failing = meter.during(async () => {
      await delay(10);
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    expect(meter.totalMs).toBeGreaterThanOrEqual(9);
    const before = meter.totalMs;
    await delay(10);
    expect(meter.totalMs).toBe(before);
  });
});
