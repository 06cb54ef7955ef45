// Time in which a run was paused, blocked or without a workflow, counted from its records.
import { describe, expect, it } from 'vitest';
import type { AttemptRecord } from '../../../src/spec/records/attempt-records.js';
import type { ControlChange, ControlRecord } from '../../../src/spec/records/control-records.js';
import type { OwnerRecord } from '../../../src/spec/records/run-records.js';
import { heldBetween } from '../../../src/store/runs/held-time.js';
import { recordsOfAllKinds } from '../fixtures.js';

const start = Date.parse('2026-01-02T03:00:00.000Z');
const at = (seconds: number): string => new Date(start + seconds * 1000).toISOString();
const all = recordsOfAllKinds();

function attempt(part: string, seconds: number): AttemptRecord {
  return {
    ...all.attempt,
    activity: `step-000010/${part}`,
    observed: { ...all.attempt.observed, at: at(seconds) },
  };
}

const pause = (seconds: number): [number, ControlChange] => [seconds, { kind: 'pause' }];
const pauseNow = (seconds: number): [number, ControlChange] => [seconds, { kind: 'pause', now: true }];
const resume = (seconds: number): [number, ControlChange] => [seconds, { kind: 'resume' }];

/** Held seconds of a step that runs from second 100 to second 200. */
function held(
  changes: readonly [number, ControlChange][],
  attempts: readonly AttemptRecord[] = [],
  claims: readonly [number, string][] = [],
): Record<string, number> {
  const control = changes.map(([seconds, change], index): ControlRecord => ({
    ...all.control,
    n: index + 1,
    change,
    observed: { at: at(seconds) },
  }));
  const owners = [[0, 'first'] as const, ...claims].map(
    ([seconds, firstExecutionRunId], index): OwnerRecord => ({
      ...all.owner,
      n: index + 1,
      firstExecutionRunId,
      observed: { ...all.owner.observed, at: at(seconds) },
    }),
  );
  const seconds = heldBetween(start + 100_000, start + 200_000, attempts, { control, owners });
  return Object.fromEntries(Object.entries(seconds).filter(([, value]) => value !== 0));
}

it('a run that nothing held has no held time', () => {
  expect(held([], [attempt('collect', 110)])).toEqual({});
});

describe('a pause', () => {
  it('that was requested during the previous step counts from that step’s commit to the resume', () => {
    expect(held([pause(90), resume(160)])).toEqual({ paused: 60 });
  });

  it('counts only from the last attempt that began after that commit', () => {
    expect(held([pause(90), resume(160)], [attempt('evaluate-interval', 120)])).toEqual({ paused: 40 });
  });

  it('at a step boundary counts from its request', () => {
    expect(held([pause(110), resume(160)])).toEqual({ paused: 50 });
  });

  it('that is resumed before the running step ends does not count', () => {
    expect(held([pause(120), resume(160)], [attempt('collect', 105)])).toEqual({});
  });

  it('with `now` counts even in the middle of a step', () => {
    expect(held([pauseNow(120), resume(160)], [attempt('collect', 105)])).toEqual({ paused: 40 });
    expect(held([pause(110), pauseNow(120), resume(160)], [attempt('collect', 105)])).toEqual({ paused: 40 });
  });

  it('counts towards the step in which it ends, and each pause counts separately', () => {
    expect(held([pause(20), resume(90), pause(95), resume(210)])).toEqual({});
    expect(held([pause(95), resume(110), pauseNow(150), resume(155)])).toEqual({ paused: 15 });
  });
});

it('a resume without a pause ends a block, which began at the last sign of work', () => {
  expect(held([resume(180)], [attempt('collect', 130)])).toEqual({ blocked: 50 });
  expect(held([pause(90), resume(120), resume(180)])).toEqual({ paused: 20, blocked: 60 });
});

it('a run has no workflow from the last sign of work of one workflow to the claim of the next', () => {
  expect(held([], [attempt('collect', 130)], [[170, 'second']])).toEqual({ unowned: 40 });
  expect(held([], [attempt('collect', 180)], [[170, 'second']])).toEqual({ unowned: 70 });
});

it('a workflow that claims its own run again was not away', () => {
  expect(held([], [], [[170, 'first']])).toEqual({});
});

it('a run that lost its workflow during a pause counts as without a workflow until the claim, and as paused after it', () => {
  expect(held([pause(90), resume(190)], [], [[150, 'second']])).toEqual({ unowned: 50, paused: 40 });
});
