import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { recordControl } from '../../src/activities/record-control.js';
import type { OrchestratorDeps } from '../../src/activities/orchestrator-deps.js';
import { controlFolder } from '../../src/store/layout.js';
import type { ObjectStore } from '../../src/store/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { readSequence } from '../../src/store/records.js';

describe('recordControl', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-control-'));
  let store: ObjectStore;
  const record = (updateId: string, lr: number) =>
    recordControl({ store, log: () => undefined } as unknown as OrchestratorDeps, {
      ...{ run: 'r', owner: 1, updateId },
      change: { kind: 'setHyperparameters', lr },
    });
  const written = async () =>
    (await readSequence(store, controlFolder('r'), 'control')).map(({ update_id }) => update_id);

  beforeEach(async () => {
    store = await openStore(`dir:${folder}`);
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('writes one record for one Update, though eight attempts of it run at once', async () => {
    const states = await Promise.all(Array.from({ length: 8 }, () => record('the-update', 0.5)));
    expect(await written()).toEqual(['the-update']);
    expect(new Set(states.map(({ n, lr }) => `${n} ${lr}`))).toEqual(new Set(['1 0.5']));
  });

  it('gives different Updates that come at once a record each, in one order for all', async () => {
    await Promise.all([record('a', 0.1), record('b', 0.2), record('a', 0.1), record('b', 0.2)]);
    expect((await written()).sort()).toEqual(['a', 'b']);
  });

  it('answers what holds now to an Update that was recorded long ago', async () => {
    await record('a', 0.1);
    await record('b', 0.2);
    expect(await record('a', 0.1)).toMatchObject({ n: 2, lr: 0.2 });
    expect(await written()).toEqual(['a', 'b']);
  });
});
