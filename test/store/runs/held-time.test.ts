// Time in which nobody drove a run on, counted from its records: a person's, or nobody's.
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

/** The step between the seconds 100 and 200. */
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

it('is none where nobody had to be asked', () => {
  expect(held([], [attempt('collect', 110)])).toEqual({});
});

describe('a pause', () => {
  it('that was asked for in the step before holds from its commit until it is resumed', () => {
    expect(held([pause(90), resume(160)])).toEqual({ paused: 60 });
  });

  it('holds from the last thing that was done after that commit', () => {
    expect(held([pause(90), resume(160)], [attempt('evaluate-interval', 120)])).toEqual({ paused: 40 });
  });

  it('at a step boundary holds from when it was asked for', () => {
    expect(held([pause(110), resume(160)])).toEqual({ paused: 50 });
  });

  it('that is resumed before the step under way ends has held nothing', () => {
    expect(held([pause(120), resume(160)], [attempt('collect', 105)])).toEqual({});
  });

  it('at once holds in the middle of a step', () => {
    expect(held([pauseNow(120), resume(160)], [attempt('collect', 105)])).toEqual({ paused: 40 });
    expect(held([pause(110), pauseNow(120), resume(160)], [attempt('collect', 105)])).toEqual({ paused: 40 });
  });

  it('counts towards the step in which it ends, and each one for itself', () => {
    expect(held([pause(20), resume(90), pause(95), resume(210)])).toEqual({});
    expect(held([pause(95), resume(110), pauseNow(150), resume(155)])).toEqual({ paused: 15 });
  });
});

it('a block ends with a resume that no pause is behind, and began after the last sign of work', () => {
  expect(held([resume(180)], [attempt('collect', 130)])).toEqual({ blocked: 50 });
  expect(held([pause(90), resume(120), resume(180)])).toEqual({ paused: 20, blocked: 60 });
});

it('nobody drives a run from the last sign of one workflow to the claim of the next', () => {
  expect(held([], [attempt('collect', 130)], [[170, 'second']])).toEqual({ unowned: 40 });
  expect(held([], [attempt('collect', 180)], [[170, 'second']])).toEqual({ unowned: 70 });
});

it('a workflow that claims its own run again has not been away', () => {
  expect(held([], [], [[170, 'first']])).toEqual({});
});

it('a run that was paused when its workflow was lost is nobody’s until it is claimed, and a person’s from then on', () => {
  expect(held([pause(90), resume(190)], [], [[150, 'second']])).toEqual({ unowned: 50, paused: 40 });
});
