import { beforeEach, describe, expect, it } from 'vitest';
import { recordControl } from '../../../src/activities/run/record-control.js';
import type { OrchestratorDeps } from '../../../src/activities/orchestrator-deps.js';
import type { ControlChange } from '../../../src/spec/records/control-records.js';
import { controlFolder } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { readSequence } from '../../../src/store/records/records.js';
import { tamper } from '../fixture.js';
import { ownFolder } from '../../support/scratch-folder.js';

describe('recordControl', () => {
  let folder: string;
  let store: ObjectStore;
  const change = (updateId: string, wanted: ControlChange) =>
    recordControl({ store, log: () => undefined } as unknown as OrchestratorDeps, {
      ...{ run: 'r', owner: 1, updateId },
      change: wanted,
    });
  const record = (updateId: string, lr: number) => change(updateId, { kind: 'setHyperparameters', lr });
  const pause = (updateId: string) => change(updateId, { kind: 'pause' });
  const written = async () =>
    (await readSequence(store, controlFolder('r'), 'control')).map(({ update_id }) => update_id);

  beforeEach(async () => {
    folder = ownFolder();
    store = await openStore(`dir:${folder}`);
  });

  it('writes one record for one Update, even if eight attempts run in parallel', async () => {
    const states = await Promise.all(Array.from({ length: 8 }, () => record('the-update', 0.5)));
    expect(await written()).toEqual(['the-update']);
    expect(new Set(states.map(({ n, lr }) => `${n} ${lr}`))).toEqual(new Set(['1 0.5']));
  });

  it('gives parallel Updates one record each, even if each is sent twice', async () => {
    await Promise.all([record('a', 0.1), record('b', 0.2), record('a', 0.1), record('b', 0.2)]);
    expect((await written()).sort()).toEqual(['a', 'b']);
  });

  it('returns the current control state for an Update that was recorded long ago', async () => {
    await record('a', 0.1);
    await record('b', 0.2);
    expect(await record('a', 0.1)).toMatchObject({ n: 2, lr: 0.2 });
    expect(await written()).toEqual(['a', 'b']);
  });

  it('writes an Update once, however often it is sent', async () => {
    expect(await pause('u1')).toMatchObject({ n: 1, paused: true });
    expect(await pause('u1')).toMatchObject({ n: 1, paused: true });
    expect(await pause('u2')).toMatchObject({ n: 2 });
  });

  it('gives parallel Updates consecutive numbers', async () => {
    await Promise.all(['a', 'b', 'c', 'd'].map(pause));
    expect(await pause('a')).toMatchObject({ n: 4 });
  });

  it('refuses a record of a newer version instead of guessing', async () => {
    await pause('u1');
    await tamper(store, `${controlFolder('r')}1.json`, (bytes) =>
      bytes.toString().replace('longhaul.control/3', 'longhaul.control/4'),
    );
    // This worker does not read the record again, so a new worker is needed to find the change.
    store = await openStore(`dir:${folder}`);
    await expect(pause('u2')).rejects.toMatchObject({ name: 'NewerSchema' });
  });
});
