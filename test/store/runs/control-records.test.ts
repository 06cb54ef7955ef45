// A long run has hundreds of control records, and each of its activities needs all of them.
import { describe, expect, it } from 'vitest';
import { recordControl } from '../../../src/activities/run/record-control.js';
import type { OrchestratorDeps } from '../../../src/activities/orchestrator-deps.js';
import { readControl } from '../../../src/store/runs/control-records.js';
import { controlFolder, sequenceKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { openRunView } from '../../../src/store/runs/quarantine.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const records = 40;

describe('many control records', () => {
  const folder = scratchFolder();

  const change = (store: ObjectStore, run: string, updateId: string) =>
    recordControl({ store, log: () => undefined } as unknown as OrchestratorDeps, {
      ...{ run, owner: 1, updateId },
      change: { kind: 'setHyperparameters', lr: 0.1 },
    });

  async function filled(run: string): Promise<{ store: ObjectStore; reads: string[] }> {
    const store = await openStore(`dir:${folder}`);
    for (let i = 1; i <= records; i += 1) await change(store, run, `u${i}`);
    const reads: string[] = [];
    const get = (key: string): Promise<Uint8Array | null> => {
      reads.push(key);
      return store.get(key);
    };
    return { store: { ...bound(store), get }, reads };
  }

  it('are read once, even if many activities read the run', async () => {
    const { store, reads } = await filled('often');
    for (let activity = 0; activity < 5; activity += 1) await openRunView(store, 'often');
    expect(reads.filter((key) => key.startsWith(controlFolder('often')))).toHaveLength(records);
  });

  it('are not read again when the next change is recorded', async () => {
    const { store, reads } = await filled('change');
    await openRunView(store, 'change');
    reads.length = 0;
    expect(await change(store, 'change', 'late')).toMatchObject({ n: records + 1 });
    expect(reads.filter((key) => key.startsWith(controlFolder('change')))).toEqual([
      sequenceKey(controlFolder('change'), records + 1),
    ]);
  });

  it('include a record that another process has written meanwhile', async () => {
    const { store } = await filled('other');
    await readControl(store, 'other');
    await change(await openStore(`dir:${folder}`), 'other', 'elsewhere');
    expect((await readControl(store, 'other')).at(-1)).toMatchObject({
      n: records + 1,
      update_id: 'elsewhere',
    });
  });
});

function bound(store: ObjectStore): ObjectStore {
  return {
    address: store.address,
    get: (key) => store.get(key),
    head: (key) => store.head(key),
    create: (key, bytes) => store.create(key, bytes),
    createFromFile: (key, path, transfer) => store.createFromFile(key, path, transfer),
    getToFile: (key, path, transfer) => store.getToFile(key, path, transfer),
    stream: (key) => store.stream(key),
    list: (prefix) => store.list(prefix),
    listFolder: (prefix) => store.listFolder(prefix),
    delete: (key) => store.delete(key),
    sweep: (olderThanMs) => store.sweep(olderThanMs),
  };
}
