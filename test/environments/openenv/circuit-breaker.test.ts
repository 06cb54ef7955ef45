import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createCircuitBreaker } from '../../../src/environments/openenv/circuit-breaker.js';

describe('the circuit breaker', () => {
  let healthy = false;
  let polls = 0;
  const create = () =>
    createCircuitBreaker({
      threshold: 3,
      probe: () => {
        polls++;
        return Promise.resolve(healthy);
      },
    });
  beforeEach(() => {
    vi.useFakeTimers();
    healthy = false;
    polls = 0;
  });
  afterEach(() => vi.useRealTimers());

  it('opens after several losses in a row, not after losses between successes', () => {
    const breaker = create();
    for (let i = 0; i < 10; i++) {
      breaker.lost();
      breaker.lost();
      breaker.succeeded();
    }
    expect(breaker.allowsCalls).toBe(true);
    for (let i = 0; i < 3; i++) breaker.lost();
    expect(breaker.allowsCalls).toBe(false);
  });

  it('polls after 200 ms, then less and less often, at least every 2 s', async () => {
    const breaker = create();
    for (let i = 0; i < 3; i++) breaker.lost();
    await vi.advanceTimersByTimeAsync(199);
    expect(polls).toBe(0);
    await vi.advanceTimersByTimeAsync(200 + 400 + 800 + 1600 + 2000 - 199);
    expect(polls).toBe(5);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(polls).toBe(15);
    breaker.close();
    await vi.advanceTimersByTimeAsync(20_000);
    expect(polls).toBe(15);
  });

  it('lets calls through when a poll succeeds; a loss then opens the breaker again, a success closes it', async () => {
    const breaker = create();
    for (let i = 0; i < 3; i++) breaker.lost();
    healthy = true;
    await vi.advanceTimersByTimeAsync(200);
    expect(breaker.allowsCalls).toBe(true);
    breaker.lost();
    expect(breaker.allowsCalls).toBe(false);
    await vi.advanceTimersByTimeAsync(400);
    expect(breaker.allowsCalls).toBe(true);
    breaker.succeeded();
    for (let i = 0; i < 2; i++) breaker.lost();
    expect(breaker.allowsCalls).toBe(true);
  });

  it('is not closed by replies that were on their way when the breaker opened', () => {
    const breaker = create();
    for (let i = 0; i < 3; i++) breaker.lost();
    breaker.succeeded();
    expect(breaker.allowsCalls).toBe(false);
  });
});
