// What a workflow alone knows of the time in which its run did not get on, told to each update once.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { IdleClock } from '../../../src/workflows/status/idle-clock.js';
import { nodeLostAfterMs } from '../../../src/workflows/messages.js';

beforeEach(() => {
  vi.useFakeTimers({ now: 1_000_000 });
});
afterEach(() => {
  vi.useRealTimers();
});

const passes = (seconds: number): void => void vi.setSystemTime(Date.now() + seconds * 1000);
const clock = (carried?: ConstructorParameters<typeof IdleClock>[0]): IdleClock => new IdleClock(carried);

it('nothing is told of a run that gets on', () => {
  const idle = clock();
  idle.phase('collecting');
  passes(3600);
  idle.answered({ ended_at: Date.now() - 900 });
  idle.answered({});
  expect(idle.open).toBeUndefined();
});

it('time is that of the phase in which it passed', () => {
  const idle = clock();
  for (const [phase, seconds] of [
    ['paused', 60],
    ['collecting', 10],
    ['blocked', 30],
    ['placing', 5],
    ['paused', 1],
  ] as const) {
    idle.phase(phase);
    passes(seconds);
  }
  expect(idle.open?.figures).toEqual({
    'ft/paused_seconds': 61,
    'ft/blocked_seconds': 30,
    'ft/waiting_seconds': 5,
  });
});

it('an answer that comes late has stalled the run, and several that one outage held up have done so once', () => {
  const idle = clock();
  const ended_at = Date.now();
  passes(20);
  idle.answered({ ended_at });
  passes(0.5);
  idle.answered({ ended_at: ended_at + 100 });
  expect(idle.open?.figures).toEqual({ 'ft/stalled_seconds': 20, 'ft/lost_seconds': 20 });
});

it('what an update has taken over is not told again, and what came meanwhile is', () => {
  const idle = clock();
  idle.phase('paused');
  passes(10);
  idle.phase('updating');
  idle.answered({ troubled: true });
  const taken = idle.open;
  expect(taken).toEqual({ recorded: true, figures: { 'ft/paused_seconds': 10 } });
  idle.phase('blocked');
  passes(5);
  idle.phase('updating');
  idle.settled(taken);
  expect(idle.open).toEqual({ recorded: false, figures: { 'ft/blocked_seconds': 5 } });
});

it('what the record of an update does not count is told again', () => {
  const idle = clock({ recorded: false, figures: { 'ft/paused_seconds': 7, 'ft/lost_seconds': 15 } });
  idle.settled(idle.open, { 'ft/lost_seconds': 10 });
  expect(idle.open).toEqual({ recorded: false, figures: { 'ft/lost_seconds': 10 } });
});

it('what no update has taken over goes on in the next execution', () => {
  const idle = clock({ recorded: true, figures: { 'ft/paused_seconds': 7 } });
  expect(clock(idle.open).open).toEqual({ recorded: true, figures: { 'ft/paused_seconds': 7 } });
});

it('a lost node counts from its last report; one that a waiting run had does not count', () => {
  const idle = clock();
  idle.phase('paused');
  expect(idle.nodeGone('lost')).toBe(false);
  idle.phase('collecting');
  expect(idle.nodeGone('draining')).toBe(true);
  expect(idle.nodeGone('released')).toBe(false);
  expect(idle.nodeGone('lost')).toBe(true);
  expect(idle.open?.figures).toEqual({
    'ft/restarts/node_drained': 1,
    'ft/restarts/node_lost': 1,
    'ft/detection_seconds': nodeLostAfterMs / 1000,
    'ft/lost_seconds': nodeLostAfterMs / 1000,
  });
});
