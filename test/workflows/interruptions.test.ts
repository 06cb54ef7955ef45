// Interruptions that only the workflow knows. It reports them to activities until one of these has returned.
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

it('a run without delays reports nothing', () => {
  const interruptions = new Interruptions();
  const begun = Date.now();
  passes(0.9);
  interruptions.waitedSince(begun);
  interruptions.answered([], { ended_at: begun });
  interruptions.answered([], {});
  expect(interruptions.undelivered).toEqual([]);
});

it('a wait for a node is reported with its length', () => {
  const interruptions = new Interruptions();
  const begun = Date.now();
  passes(5);
  interruptions.waitedSince(begun);
  expect(interruptions.undelivered).toEqual([{ what: 'waited', seconds: 5 }]);
});

it('a late answer counts as a wait; several answers that the same outage delayed count as one', () => {
  const interruptions = new Interruptions();
  const ended_at = Date.now();
  passes(20);
  interruptions.answered([], { ended_at });
  passes(0.5);
  interruptions.answered([], { ended_at: ended_at + 100 });
  expect(interruptions.undelivered).toEqual([{ what: 'waited', seconds: 20 }]);
});

it('interruptions that a returned activity has received are not reported again, but later interruptions are', () => {
  const interruptions = new Interruptions();
  interruptions.nodeGone({ ...gone, reason: 'draining' });
  const told = interruptions.undelivered;
  interruptions.nodeGone({ ...gone, reason: 'lost' });
  // Two activities side by side received the same interruptions.
  interruptions.answered(told, {});
  interruptions.answered(told, {});
  expect(interruptions.undelivered).toMatchObject([{ what: 'node_lost' }]);
});

it('undelivered interruptions are carried over to the next execution', () => {
  const interruptions = new Interruptions();
  interruptions.nodeGone({ ...gone, reason: 'lost' });
  expect(new Interruptions(interruptions.undelivered).undelivered).toEqual(interruptions.undelivered);
});

it('a lost node counts from its last report, a draining node from its notice, a released node not at all', () => {
  const interruptions = new Interruptions();
  for (const reason of ['draining', 'released', 'lost'] as const) interruptions.nodeGone({ ...gone, reason });
  expect(interruptions.undelivered).toEqual([
    { what: 'node_drained', seconds: 0, event: gone.lease, node: gone.node },
    { what: 'node_lost', seconds: nodeLostAfterMs / 1000, event: gone.lease },
  ]);
});
