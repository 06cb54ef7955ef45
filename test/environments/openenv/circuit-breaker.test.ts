import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createCircuitBreaker } from '../../../src/environments/openenv/circuit-breaker.js';

const quiet = new AbortController().signal;

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

  it('opens after losses in a row, not after losses between successes', () => {
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

  it('polls after 200 ms, then ever more slowly, at most every 5 s', async () => {
    const breaker = create();
    for (let i = 0; i < 3; i++) breaker.lost();
    await vi.advanceTimersByTimeAsync(199);
    expect(polls).toBe(0);
    await vi.advanceTimersByTimeAsync(200 + 400 + 800 + 1600 + 3200 - 199);
    expect(polls).toBe(5);
    await vi.advanceTimersByTimeAsync(50_000);
    expect(polls).toBe(15);
    breaker.close();
    await vi.advanceTimersByTimeAsync(50_000);
    expect(polls).toBe(15);
  });

  it('lets calls through when a poll answers; one loss opens it again, a success closes it', async () => {
    const breaker = create();
    for (let i = 0; i < 3; i++) breaker.lost();
    healthy = true;
    const waiting = breaker.waitUntilHealthy(quiet, Date.now() + 60_000);
    await vi.advanceTimersByTimeAsync(200);
    expect(await waiting).toBe(true);
    breaker.lost();
    expect(breaker.allowsCalls).toBe(false);
    expect(breaker.openForMs()).toBe(200);
    await vi.advanceTimersByTimeAsync(400);
    expect(breaker.allowsCalls).toBe(true);
    expect(breaker.openForMs()).toBe(600);
    breaker.succeeded();
    expect(breaker.openForMs()).toBe(0);
  });

  it('is not closed by replies that were on their way when it opened', () => {
    const breaker = create();
    for (let i = 0; i < 3; i++) breaker.lost();
    breaker.succeeded();
    expect(breaker.allowsCalls).toBe(false);
  });

  it('stops waiting at the deadline, when aborted, and when closed', async () => {
    const breaker = create();
    for (let i = 0; i < 3; i++) breaker.lost();
    const late = breaker.waitUntilHealthy(quiet, Date.now() + 1000);
    await vi.advanceTimersByTimeAsync(1000);
    expect(await late).toBe(false);
    const stop = new AbortController();
    const aborted = breaker.waitUntilHealthy(stop.signal, Date.now() + 60_000);
    stop.abort(new Error('the run is paused'));
    await expect(aborted).rejects.toThrow('the run is paused');
    const closed = breaker.waitUntilHealthy(quiet, Date.now() + 60_000);
    breaker.close();
    expect(await closed).toBe(false);
  });
});
