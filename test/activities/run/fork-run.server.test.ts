// Forks (R5, R22): another run continues after a committed step of this run, and nothing is copied.
import { describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { forkSpec } from '../../../src/activities/run/fork-run.js';
import { recordControl } from '../../../src/activities/run/record-control.js';
import { listCheckpoints } from '../../../src/store/runs/checkpoints.js';
import { planCollection } from '../../../src/store/collection/collection.js';
import { openRunView } from '../../../src/store/runs/quarantine.js';
import { readReferences } from '../../../src/store/collection/references.js';
import { saveState, uploadCheckpoint } from '../../../src/activities/step/save-state.js';
import { planKey, refKey, runKey, stepsFolder } from '../../../src/store/record-keys.js';
import { readRecord, requireRecord } from '../../../src/store/records/records.js';
import { readRun, readState, timelineOf } from '../../../src/store/runs/run-records.js';
import { run, tamper } from '../fixture.js';
import {
  advance,
  copy,
  dyingAfter,
  fork,
  harness,
  last,
  lrFromStep4,
  open,
  statesOf,
  useRunToFork,
} from './run-to-fork.js';

useRunToFork();

describe('a fork', () => {
  test('without changes takes the same further steps as its parent, bit for bit, and copies no earlier step', async () => {
    const { opened } = await fork('same', { run, step: 3 });
    expect(opened).toMatchObject({
      outline: { run: 'same', lineage: { run, step: 3 } },
      position: { step: 3, state: await readState(harness.store, run, 3), lastCheckpoint: 2 },
      control: { n: 0, lr: null },
    });
    // A changed setting holds from the next plan on. The parent's fourth step was planned with the changed setting, and so is the fork's
    // fourth step.
    await recordControl(harness.orchestrator, {
      run: 'same',
      owner: opened.owner,
      updateId: 'u1',
      change: { kind: 'setHyperparameters', lr: lrFromStep4 },
    });
    await advance('same', opened.owner, last, 1);
    const states = await statesOf(run, [0, 1, 2, 3, 4, 5]);
    expect(new Set(states).size).toBe(6);
    expect(await statesOf('same', [0, 1, 2, 3, 4, 5])).toEqual(states);
    expect(await harness.store.listFolder(stepsFolder('same'))).toEqual(['000004/', '000005/']);
    expect(await harness.store.listFolder('checkpoints/tests/unit/')).toEqual([`${run}/`]);
    expect((await auditRun(harness.store, 'same')).violations).toEqual([]);
  });

  test('keeps the settings that were changed before the step where it begins', async () => {
    const { spec, opened } = await fork('tuned', { run, step: 4 });
    expect(spec.trainer.lr).toBe(lrFromStep4);
    await advance('tuned', opened.owner, 5);
    expect(await statesOf('tuned', [5])).toEqual(await statesOf(run, [5]));
  });

  test('with another learning rate reaches other states, from the same state', async () => {
    const { opened } = await fork('faster', { run, step: 4 }, ({ trainer }) => (trainer.lr = 9e-3));
    await advance('faster', opened.owner, 5);
    const [four, five] = await statesOf('faster', [4, 5]);
    expect(four).toBe(await readState(harness.store, run, 4));
    expect(five).not.toBe(await readState(harness.store, run, 5));
  });

  test('of a fork that is still running continues from the shared steps', async () => {
    const first = await fork('first', { run, step: 3 });
    await advance('first', first.opened.owner, 4);
    const own = await fork('of-its-own-step', { run: 'first', step: 4 });
    const early = await fork('of-a-shared-step', { run: 'first', step: 2 });
    await advance('first', first.opened.owner, 5);
    await advance('of-its-own-step', own.opened.owner, 5);
    await advance('of-a-shared-step', early.opened.owner, 5);
    const expected = await statesOf('first', [1, 2, 3, 4, 5]);
    expect(await statesOf('of-its-own-step', [1, 2, 3, 4, 5])).toEqual(expected);
    expect(await statesOf('of-a-shared-step', [1, 2, 3, 4, 5])).toEqual(expected);
    expect(await timelineOf(harness.store, 'of-a-shared-step', 2)).toBe(run);
    // The reference is stored under the run that holds the step.
    expect(await harness.store.head(refKey(run, 'of-a-shared-step'))).not.toBeNull();
    expect(await harness.store.head(refKey('first', 'of-its-own-step'))).not.toBeNull();
    expect((await auditRun(harness.store, 'of-its-own-step')).violations).toEqual([]);
  });

  test('continues when its workflow starts again, with its own spec or with the stored spec', async () => {
    const { spec, opened } = await fork('again', { run, step: 3 });
    await advance('again', opened.owner, 4);
    const { fork: _, ...stored } = spec;
    expect((await readRun(harness.store, 'again')).spec).toEqual(stored);
    for (const one of [spec, stored])
      expect(await open(one)).toMatchObject({ outline: { run: 'again' }, position: { step: 4 } });
  });

  test('protects its parent’s checkpoint from collection as soon as the reference is written', async () => {
    const store = await copy();
    const only = { keep_last: 1, keep_every: 0, keep_best: 0 };
    await harness.attempt('save', () => saveState(harness.node, { run, step: 5, owner: 1 }));
    const at5 = { ...harness.node, store };
    await harness.attempt('upload', () => uploadCheckpoint(at5, { run, step: 5, owner: 1 }));
    const plan = () =>
      planCollection(store, run, {
        retention: only,
      });
    expect((await plan()).checkpoints).toEqual([2]);
    const spec = await forkSpec(store, 'safe', { run, step: 3 });
    await expect(open(spec, dyingAfter(store, 1))).rejects.toThrow('killed');
    expect(await readReferences(store, run)).toMatchObject([{ user: 'safe', step: 3, kind: 'fork' }]);
    expect((await plan()).kept.get(2)).toEqual(['needed by safe']);
  });

  test('skips records that its parent had quarantined', async () => {
    const store = await copy();
    const key = planKey(run, last + 1);
    await store.create(key, Buffer.from('{"cut of'));
    const change = { kind: 'quarantine', key } as const;
    await recordControl({ ...harness.orchestrator, store }, { run, owner: 1, updateId: 'q', change });
    expect(await readRecord(await openRunView(store, run), key, 'plan')).toBeNull();
    await open(await forkSpec(store, 'aside', { run, step: last }), store);
    expect(await readRecord(await openRunView(store, 'aside'), key, 'plan')).toBeNull();
  });
});

test('a fork after a step whose checkpoint was collected begins at an older checkpoint', async () => {
  const store = await copy();
  const { spec } = await readRun(store, run);
  await tamper(store, `checkpoints/tests/unit/${run}/global_step_2/manifest.json`, () => null);
  expect(await listCheckpoints(store, await requireRecord(store, runKey(run), 'run'))).toEqual([]);
  expect(await open({ ...spec, name: 'late', fork: { run, step: 2 } }, store)).toMatchObject({
    position: { step: 2, lastCheckpoint: null },
  });
});
