// What a workflow alone knows of the time in which its run did not get on, told to activities until one of them has answered.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Interruptions } from '../../src/workflows/interruptions.js';
import { nodeLostAfterMs } from '../../src/workflows/messages.js';

beforeEach(() => {
  vi.useFakeTimers({ now: 1_000_000 });
});
afterEach(() => {
  vi.useRealTimers();
});

const passes = (seconds: number): void => void vi.setSystemTime(Date.now() + seconds * 1000);
const gone = { lease: 'tiny/1', node: 'node-a' };

it('nothing is told of a run that gets on', () => {
  const interruptions = new Interruptions();
  const begun = Date.now();
  passes(0.9);
  interruptions.waitedSince(begun);
  interruptions.answered([], { ended_at: begun });
  interruptions.answered([], {});
  expect(interruptions.undelivered).toEqual([]);
});

it('a wait for a node is told with its length', () => {
  const interruptions = new Interruptions();
  const begun = Date.now();
  passes(5);
  interruptions.waitedSince(begun);
  expect(interruptions.undelivered).toEqual([{ what: 'waited', seconds: 5 }]);
});

it('an answer that comes late has stalled the run, and several that one outage held up have done so once', () => {
  const interruptions = new Interruptions();
  const ended_at = Date.now();
  passes(20);
  interruptions.answered([], { ended_at });
  passes(0.5);
  interruptions.answered([], { ended_at: ended_at + 100 });
  expect(interruptions.undelivered).toEqual([{ what: 'waited', seconds: 20 }]);
});

it('what an activity that has answered was told is not told again, and what came meanwhile is', () => {
  const interruptions = new Interruptions();
  interruptions.nodeGone({ ...gone, reason: 'draining' });
  const told = interruptions.undelivered;
  interruptions.nodeGone({ ...gone, reason: 'lost' });
  // Side by side, two were told the same.
  interruptions.answered(told, {});
  interruptions.answered(told, {});
  expect(interruptions.undelivered).toMatchObject([{ what: 'node_lost' }]);
});

it('what no activity was told goes on in the next execution', () => {
  const interruptions = new Interruptions();
  interruptions.nodeGone({ ...gone, reason: 'lost' });
  expect(new Interruptions(interruptions.undelivered).undelivered).toEqual(interruptions.undelivered);
});

it('a lost node counts from its last report, one that leaves from when it said so, one that is given back not at all', () => {
  const interruptions = new Interruptions();
  for (const reason of ['draining', 'released', 'lost'] as const) interruptions.nodeGone({ ...gone, reason });
  expect(interruptions.undelivered).toEqual([
    { what: 'node_drained', seconds: 0, event: gone.lease },
    { what: 'node_lost', seconds: nodeLostAfterMs / 1000, event: gone.lease },
  ]);
});
