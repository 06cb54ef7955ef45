// The figures ft/* are counted from records alone: an event once, whoever saw it, and the same however often they are counted.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { AttemptRecord, Recovery } from '../../../src/spec/records/attempt-records.js';
import {
  asOf,
  faultsIn,
  figuresOf,
  plusFigures,
  readStepAttempts,
  uncounted,
} from '../../../src/store/runs/fault-figures.js';
import { attemptFolder, sequenceKey } from '../../../src/store/objects/layout.js';
import { openStore } from '../../../src/store/open-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { recordsOfAllKinds } from '../fixtures.js';

const recovery: Recovery = {
  cause: 'engine_exit',
  event: 'n1@host pid 12, engine 34',
  lost: { seconds: 2, tokens: 100, episodes: 4 },
  detection_seconds: 0.1,
  down_seconds: 3,
  restore: { from: 'disk', step: 8, bytes: 1_000, seconds: 0.5 },
  replay: { steps: 2, seconds: 1.5 },
};

function attempt(activity: string, recoveries: Recovery[], waited_seconds?: number): AttemptRecord {
  const base = recordsOfAllKinds().attempt;
  const waited = waited_seconds === undefined ? {} : { waited_seconds };
  return {
    ...base,
    activity: `step-000010/${activity}`,
    observed: { ...base.observed, recoveries, ...waited },
  };
}

describe('the figures of a step', () => {
  it('are none where its attempts tell of nothing', () => {
    expect(faultsIn([recordsOfAllKinds().attempt, attempt('collect', [])])).toEqual({});
  });

  it('name what was lost, and what it took to work again', () => {
    expect(faultsIn([attempt('collect', [recovery])])).toEqual({
      'ft/restarts/engine_exit': 1,
      'ft/lost_seconds': 5,
      'ft/lost_tokens': 100,
      'ft/lost_episodes': 4,
      'ft/detection_seconds': 0.1,
      'ft/restore_seconds': 0.5,
      'ft/restore_bytes': 1_000,
      'ft/replay_seconds': 1.5,
      'ft/replayed_steps': 2,
    });
  });

  it('count a death once that ended two activities: the longer time, and what each of them lost', () => {
    const { restore: _, replay: __, ...beside } = recovery;
    const evaluating = { ...beside, down_seconds: 4, lost: { seconds: 1, tokens: 30, episodes: 2 } };
    expect(
      faultsIn([attempt('collect', [recovery]), attempt('evaluate-interval', [evaluating])]),
    ).toMatchObject({
      'ft/restarts/engine_exit': 1,
      'ft/lost_seconds': 6,
      'ft/lost_tokens': 130,
      'ft/restore_seconds': 0.5,
    });
  });

  it('leave out what befell a sweep at a state of the run', () => {
    expect(faultsIn([attempt('evaluate-sweep-3', [recovery], 60)])).toEqual({});
    expect(faultsIn([attempt('collect', [recovery]), attempt('evaluate-sweep-3.1', [recovery], 60)])).toEqual(
      faultsIn([attempt('collect', [recovery])]),
    );
  });

  it('count two deaths twice, also in one attempt', () => {
    const again = { ...recovery, event: 'n1@host pid 12, engine 56' };
    expect(faultsIn([attempt('collect', [recovery, again])])).toMatchObject({
      'ft/restarts/engine_exit': 2,
      'ft/lost_seconds': 10,
      'ft/replayed_steps': 4,
    });
  });

  it('tell of a restore that no failure was behind, and count no restart', () => {
    const figures = faultsIn([attempt('collect', [{ ...recovery, cause: 'placed' }])]);
    expect(figures).toMatchObject({ 'ft/restore_seconds': 0.5, 'ft/replay_seconds': 1.5 });
    expect(Object.keys(figures).filter((name) => name.startsWith('ft/restarts/'))).toEqual([]);
  });

  it('add the waits of attempts one after another, and not of activities side by side', () => {
    const waits = [attempt('collect', [], 3), attempt('collect', [], 4), attempt('evaluate-interval', [], 5)];
    expect(faultsIn(waits)).toEqual({ 'ft/waiting_seconds': 7 });
  });
});

describe('the attempts of a step', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-figures-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it('are those on the way to it, and those at the state before it: each counts towards one step', async () => {
    const store = await openStore(`dir:${folder}`);
    const activities = ['base', 'collect', 'update', 'evaluate-interval', 'evaluate-final'];
    for (const step of [9, 10, 11]) {
      for (const [n, activity] of activities.entries()) {
        const name = `step-${String(step).padStart(6, '0')}/${activity}`;
        const record: AttemptRecord = { ...recordsOfAllKinds().attempt, activity: name, n: 1 };
        const key = sequenceKey(attemptFolder('quickstart', step, activity, `execution-${n}.1`), 1);
        await store.create(key, await encodeRecord('attempt', record));
      }
    }
    const counted = await readStepAttempts(store, 'quickstart', 10);
    expect(counted.map(({ activity }) => activity).sort()).toEqual([
      'step-000009/base',
      'step-000009/evaluate-final',
      'step-000009/evaluate-interval',
      'step-000010/collect',
      'step-000010/update',
    ]);
  });
});

describe('the totals of a run', () => {
  it('are those up to a step and what came after it', () => {
    expect(plusFigures({ 'ft/lost_seconds': 1.1, 'ft/lost_tokens': 3 }, { 'ft/lost_seconds': 2.2 })).toEqual({
      'ft/lost_seconds': 3.3,
      'ft/lost_tokens': 3,
    });
  });

  it('count a figure as far as they grew by it, to the millisecond', () => {
    const before = { 'ft/lost_seconds': 1.1, 'ft/paused_seconds': 60 };
    const after = { 'ft/lost_seconds': 11.223, 'ft/paused_seconds': 60 };
    expect(uncounted({ 'ft/lost_seconds': 10.1234 }, before, after)).toEqual({});
    expect(
      uncounted(
        { 'ft/lost_seconds': 15.123, 'ft/paused_seconds': 5, 'ft/restarts/node_lost': 1 },
        before,
        after,
      ),
    ).toEqual({ 'ft/lost_seconds': 5, 'ft/paused_seconds': 5, 'ft/restarts/node_lost': 1 });
  });

  it('have an ETTR of the time that was available: not paused, not blocked, and driven by somebody', () => {
    const figures = {
      'ft/lost_seconds': 5,
      'ft/waiting_seconds': 5,
      'ft/paused_seconds': 60,
      'ft/blocked_seconds': 30,
      'ft/unowned_seconds': 10,
    };
    expect(asOf(200, figures)).toEqual({ ...figures, 'ft/wall_seconds': 200, 'ft/ettr': 0.9 });
    expect(asOf(200, {})['ft/ettr']).toBe(1);
    expect(asOf(3, { 'ft/lost_seconds': 5 })['ft/ettr']).toBe(0);
    expect(asOf(0, {})['ft/ettr']).toBe(1);
  });

  it('of a fork begin with its own first step', () => {
    const { update } = recordsOfAllKinds();
    const metrics = { 'reward/avg_raw_reward': 0.5, 'ft/lost_seconds': 5 };
    const parents = { ...update, observed: { ...update.observed, metrics } };
    expect(figuresOf(update.identity.run, parents)).toEqual({ 'ft/lost_seconds': 5 });
    expect(figuresOf('a-fork', parents)).toEqual({});
    expect(figuresOf('a-fork', null)).toEqual({});
  });
});

it('a recovery of a kind that nobody knows is refused when it is written', async () => {
  const unknown = { ...recovery, cause: 'cosmic_rays' } as unknown as Recovery;
  await expect((async () => encodeRecord('attempt', attempt('collect', [unknown])))()).rejects.toThrow();
});
