import { describe, expect, it } from 'vitest';
import type { RunStatus } from '../../../src/activities/contracts.js';
import { noControl } from '../../../src/workflows/run/control-desk.js';
import {
  endsAtNextBoundary,
  headline,
  latePauseNote,
  remainingSeconds,
  stopNote,
  suiteText,
  targetNote,
} from '../../../src/workflows/status/run-text.js';

describe('the note on a stop', () => {
  const at = (step: number, stopAfter: number | null, phase: RunStatus['phase'] = 'collecting') =>
    stopNote({ step, phase, control: { ...noControl, stopAfter } });

  it('names the last step', () => {
    expect(at(5, 9)).toBe('stops after step 9');
  });

  it('names no step that is past', () => {
    expect(at(5, 5)).toBe('stops at the next step boundary');
    expect(at(5, 3)).toBe('stops at the next step boundary');
  });

  it('is absent if nobody asked for a stop, or the run has ended', () => {
    expect(at(5, null)).toBeNull();
    expect(at(5, 5, 'stopped')).toBeNull();
    expect(at(5, 9, 'completed')).toBeNull();
  });
});

describe('a pause', () => {
  const at = (step: number, stopAfter: number | null = null, phase: RunStatus['phase'] = 'collecting') =>
    endsAtNextBoundary({ phase, step, totalSteps: 10, control: { ...noControl, stopAfter } });

  it('comes too late in the last step, and after it', () => {
    expect([at(8), at(9), at(10), at(3, 4), at(3, 5), at(8, 12)]).toEqual([
      false,
      true,
      true,
      true,
      false,
      false,
    ]);
    expect([at(9, null, 'evaluating'), at(10, null, 'evaluating')]).toEqual([false, true]);
    expect(endsAtNextBoundary({ phase: 'starting', step: 0, totalSteps: 0, control: noControl })).toBe(false);
  });

  it('that came too late is named once the run has ended', () => {
    const paused = { ...noControl, paused: true };
    expect(latePauseNote({ phase: 'completed', control: paused })).toBe(
      'the pause came too late: the run completed before it',
    );
    expect(latePauseNote({ phase: 'completed', control: noControl })).toBeNull();
    expect(latePauseNote({ phase: 'paused', control: paused })).toBeNull();
  });
});

describe('the time left', () => {
  const left = (seconds: readonly number[], changes: Partial<RunStatus> = {}): number =>
    remainingSeconds({
      recent: seconds.map((one, index) => ({ step: index + 1, kind: 'grpo', seconds: one, metrics: {} })),
      ...{ step: seconds.length, totalSteps: seconds.length + 10, control: noControl },
      ...changes,
    });

  it('is not prolonged by a step that spans an outage, however few steps there are', () => {
    expect(left([10, 10, 11, 10, 2400])).toBe(100);
    expect(left([10, 2400, 10, 10, 11, 10, 10, 2400, 10])).toBe(100);
    expect(left([10, 2400])).toBe(100);
    expect(left([10, 2400, 11])).toBe(110);
  });

  it('follows the last eight steps of the same kind', () => {
    expect(left([90, 90, 90, 90, 90, 90, 90, 90, 5, 5, 5, 5, 5, 5, 5, 5])).toBe(50);
    const supervised = { step: 1, kind: 'sft', seconds: 1, metrics: {} };
    const recent = [supervised, supervised, supervised, { ...supervised, kind: 'grpo', seconds: 20 }];
    expect(left([], { recent, step: 4, totalSteps: 6 })).toBe(40);
  });

  it('ends where a stop was requested, and is never negative', () => {
    expect(left([10, 10], { control: { ...noControl, stopAfter: 5 } })).toBe(30);
    expect(left([10, 10], { control: { ...noControl, stopAfter: 1 } })).toBe(0);
    expect(left([10, 10], { control: { ...noControl, stopAfter: 99 } })).toBe(100);
    expect(left([])).toBe(0);
  });
});

it('names the final suite that was played before GRPO as such', () => {
  expect(suiteText({ suite: 'final', before_grpo: true })).toBe('final (before GRPO)');
  expect(suiteText({ suite: 'final' })).toBe('final');
});

describe('the one figure of a step', () => {
  it.each([
    ['reward 0.41', 'grpo', { 'reward/avg_raw_reward': 0.412, 'policy/final_loss': 3 }],
    ['no outcome was graded', 'grpo', { 'policy/final_loss': 0 }],
    ['loss 0.250', 'sft', { 'policy/final_loss': 0.25 }],
    ['not applied', 'grpo', { 'reward/avg_raw_reward': 0.4, unapplied: 1 }],
    [null, 'sft', { 'policy/grad_norm': 1 }],
  ])('is %s', (figure, kind, metrics) => {
    expect(headline({ kind, metrics })).toBe(figure);
  });
});

describe('the note on the end of a run whose interval evaluation reached the target', () => {
  const interval = { step: 464, suite: 'interval', pass_at_1: 0.906, graded: 128 };
  const final = { step: 464, suite: 'final', pass_at_1: 0.887, graded: 256 };
  const before = { step: 24, suite: 'final', pass_at_1: 0.3, graded: 256 };
  const note = (
    ...evaluations: (typeof interval | { pass_at_1: null; graded: 0; step: number; suite: string })[]
  ) => targetNote({ step: 464, evaluations, reachedTarget: 0.9 });

  it('names that evaluation, and the final one with its number of episodes', () => {
    expect(note(before, interval, final)).toBe(
      'ended at step 464: the interval evaluation reached 90 %; final evaluation 88.7 % (256)',
    );
    expect(note(before, interval)).toBe('ended at step 464: the interval evaluation reached 90 %');
    expect(note({ ...final, pass_at_1: null, graded: 0 })).toMatch(
      /; final evaluation – \(no outcome was graded\)$/,
    );
    expect(targetNote({ step: 464, evaluations: [interval, final] })).toBeNull();
  });
});
