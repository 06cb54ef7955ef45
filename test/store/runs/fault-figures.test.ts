// The figures ft/* are counted from records alone. An event counts once, even if several attempts record it, and each count gives the same.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { AttemptRecord, Recovery } from '../../../src/spec/records/attempt-records.js';
import type { UpdateRecord } from '../../../src/spec/records/update.js';
import {
  asOf,
  faultsAfter,
  faultsIn,
  figuresOf,
  noFaults,
  plusFigures,
  readFaults,
  withFaults,
} from '../../../src/store/runs/fault-figures.js';
import { stepAttemptsReader } from '../../../src/store/runs/step-attempts.js';
import { attemptFolder, runKey, sequenceKey, updateKey } from '../../../src/store/record-keys.js';
import { openStore } from '../../../src/store/open-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { recordsOfAllKinds } from '../fixtures.js';
import { scratchFolder } from '../../support/scratch-folder.js';

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
  it('are empty if its attempts record no fault', () => {
    expect(faultsIn([recordsOfAllKinds().attempt, attempt('collect', [])])).toEqual({});
  });

  it('contain the lost work and the cost of the recovery', () => {
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

  it('count a death that ended two activities once: with the longer time, and the lost work of both', () => {
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

  it('leave out faults of a sweep that evaluates the run’s states', () => {
    expect(faultsIn([attempt('evaluate-sweep-3', [recovery], 60)])).toEqual({});
    expect(faultsIn([attempt('collect', [recovery]), attempt('evaluate-sweep-3.1', [recovery], 60)])).toEqual(
      faultsIn([attempt('collect', [recovery])]),
    );
  });

  it('count two deaths as two, even in one attempt', () => {
    const again = { ...recovery, event: 'n1@host pid 12, engine 56' };
    expect(faultsIn([attempt('collect', [recovery, again])])).toMatchObject({
      'ft/restarts/engine_exit': 2,
      'ft/lost_seconds': 10,
      'ft/replayed_steps': 4,
    });
  });

  it('include a restore without a failure, but do not count it as a restart', () => {
    const figures = faultsIn([attempt('collect', [{ ...recovery, cause: 'placed' }])]);
    expect(figures).toMatchObject({ 'ft/restore_seconds': 0.5, 'ft/replay_seconds': 1.5 });
    expect(Object.keys(figures).filter((name) => name.startsWith('ft/restarts/'))).toEqual([]);
  });

  it('add the waits of an activity’s attempts, but not of activities that wait in parallel', () => {
    const waits = [attempt('collect', [], 3), attempt('collect', [], 4), attempt('evaluate-interval', [], 5)];
    expect(faultsIn(waits)).toEqual({ 'ft/waiting_seconds': 7 });
  });
});

describe('the attempts of a step', () => {
  const folder = scratchFolder();

  it('are the attempts to make it and the attempts that evaluate the state before it; each attempt counts towards one step', async () => {
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
    const counted = await stepAttemptsReader(store, 'quickstart')(10);
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
  it('are the sums of the totals up to a step and the figures after it', () => {
    expect(plusFigures({ 'ft/lost_seconds': 1.1, 'ft/lost_tokens': 3 }, { 'ft/lost_seconds': 2.2 })).toEqual({
      'ft/lost_seconds': 3.3,
      'ft/lost_tokens': 3,
    });
  });

  it('have an ETTR over the available time: not paused, not blocked, and with a workflow', () => {
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

describe('updates with fault figures', () => {
  const { update, run, control } = recordsOfAllKinds();
  const started = Date.parse('2026-01-02T03:00:00.000Z');
  const time = (seconds: number): string => new Date(started + seconds * 1000).toISOString();
  const record = { ...run, run: update.identity.run, lineage: null, observed: { started_at: time(0) } };
  const evidence = { record, control: [], owners: [] };
  const updateAt = (step: number, seconds: number, metrics: Record<string, number> = {}): UpdateRecord => ({
    ...update,
    identity: { ...update.identity, step },
    observed: { ...update.observed, committed_at: time(seconds), metrics },
  });

  it('have the sums over the steps so far, and the ETTR', () => {
    const first = withFaults(
      updateAt(1, 100),
      noFaults(record),
      [attempt('collect', [recovery], 5)],
      evidence,
    );
    expect(figuresOf(record.run, first)).toMatchObject({
      'ft/restarts/engine_exit': 1,
      'ft/lost_seconds': 5,
      'ft/waiting_seconds': 5,
      'ft/wall_seconds': 100,
      'ft/ettr': 0.9,
    });
    const resumed = { ...control, change: { kind: 'resume' as const }, observed: { at: time(150) } };
    const held = { ...evidence, control: [resumed] };
    const second = withFaults(updateAt(2, 200), faultsAfter(first), [attempt('update', [recovery])], held);
    expect(figuresOf(record.run, second)).toMatchObject({
      'ft/restarts/engine_exit': 2,
      'ft/lost_seconds': 10,
      'ft/blocked_seconds': 50,
      'ft/wall_seconds': 200,
      'ft/ettr': 0.9,
    });
  });

  it('are the same whether read from the start or from a later step on, and an unreadable attempt is skipped', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'longhaul-totals-'));
    const store = await openStore(`dir:${folder}`);
    try {
      await store.create(runKey(record.run), await encodeRecord('run', { ...run, ...record }));
      for (const step of [1, 2, 3]) {
        const activity = `step-00000${step}/collect`;
        const key = sequenceKey(attemptFolder(record.run, step, 'collect', 'execution.1'), 1);
        const lost = { ...recovery, event: `engine ${step}` };
        const told = { ...attempt('collect', [lost]), activity, n: 1 };
        await store.create(key, step === 2 ? Buffer.from('no record') : await encodeRecord('attempt', told));
        const committed = await encodeRecord('update', updateAt(step, 100 * step));
        await store.create(updateKey(record.run, step), committed);
      }
      const totals = await readFaults(store, record, 3);
      expect(totals).toMatchObject({ step: 3, at: time(300), figures: { 'ft/restarts/engine_exit': 2 } });
      expect(await readFaults(store, record, 3, await readFaults(store, record, 1))).toEqual(totals);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

it('a recovery with an unknown cause is never written', async () => {
  const unknown = { ...recovery, cause: 'cosmic_rays' } as unknown as Recovery;
  await expect((async () => encodeRecord('attempt', attempt('collect', [unknown])))()).rejects.toThrow();
});
