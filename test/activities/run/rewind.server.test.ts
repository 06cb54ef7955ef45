// Rewinds (R22), and forks and rewinds that are killed between two writes: no fork or rewind is left half finished.
import { describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { DatasetCache } from '../../../src/data/dataset-cache.js';
import { forkSpec } from '../../../src/activities/run/fork-run.js';
import { openRun } from '../../../src/activities/run/open-run.js';
import { RunDataCache } from '../../../src/data/run-data.js';
import { checkOwner } from '../../../src/store/runs/owners.js';
import { readReferences } from '../../../src/store/collection/references.js';
import { namesFolder, runKey, sequenceKey } from '../../../src/store/record-keys.js';
import { readRecord } from '../../../src/store/records/records.js';
import { claimName } from '../../../src/store/runs/run-records.js';
import { run, workflow } from '../fixture.js';
import { copy, dyingAfter, harness, open, useRunToFork } from './run-to-fork.js';

useRunToFork();

describe.each([
  { what: 'fork', name: 'branch', as: 'branch', writes: 4 },
  { what: 'rewind', name: run, as: `${run}~2`, writes: 5 },
])('a $what that is killed', ({ name, as, writes }) => {
  test.each(Array.from({ length: writes }, (_, k) => k))(
    'after %i writes is finished if the same start is repeated',
    async (k) => {
      const store = await copy();
      const spec = await forkSpec(store, name, { run, step: 3 });
      await expect(open(spec, dyingAfter(store, k))).rejects.toThrow('killed');
      const opened = await open(spec, store);
      expect(opened).toMatchObject({ outline: { run: as }, position: { step: 3 } });
      expect(await claimName(store, name)).toBe(as);
      expect(await readReferences(store, run)).toMatchObject([{ user: as, step: 3 }]);
      expect((await store.listFolder('runs/')).sort()).toEqual([`${run}/`, `${as}/`].sort());
      expect((await auditRun(store, as)).violations).toEqual([]);
    },
  );

  test('writes nothing more after these writes', async () => {
    const store = await copy();
    const spec = await forkSpec(store, name, { run, step: 3 });
    await open(spec, dyingAfter(store, writes));
  });
});

describe('a rewind', () => {
  test('begins the next timeline of its name, and every later start of that name continues it', async () => {
    const store = await copy();
    const spec = await forkSpec(store, run, { run, step: 3 });
    expect(await open(spec, store)).toMatchObject({
      outline: { run: `${run}~2`, name: run },
      position: { step: 3 },
    });
    const { fork: _, ...plain } = spec;
    expect(await open(plain, store)).toMatchObject({ outline: { run: `${run}~2` }, owner: 2 });
    const again = await forkSpec(store, run, { run: `${run}~2`, step: 1 });
    expect(await open(again, store)).toMatchObject({ outline: { run: `${run}~3` }, position: { step: 1 } });
    // This late start belongs to a timeline that exists already, so it creates no new one.
    expect(await open(spec, store)).toMatchObject({ outline: { run: `${run}~3` } });
    expect(await readRecord(store, sequenceKey(namesFolder(run), 4), 'name')).toBeNull();
    expect((await auditRun(store, `${run}~3`)).violations).toEqual([]);
  });

  test('ends the ownership of the previous timeline', async () => {
    const store = await copy();
    const other = { workflowId: 'train/by-hand', firstExecutionRunId: 'another' };
    const spec = await forkSpec(store, run, { run, step: 3 });
    const datasets = new DatasetCache(store);
    await openRun(
      { ...harness.orchestrator, store, datasets, runs: new RunDataCache(store, datasets) },
      { spec, workflow: { ...workflow, ...other } },
    );
    await expect(checkOwner(store, run, 1)).rejects.toThrow(/owner/);
  });

  test('is refused while a workflow on another server drives the timeline', async () => {
    const store = await copy();
    const spec = await forkSpec(store, run, { run, step: 3 });
    const elsewhere = {
      clusterId: () => Promise.resolve('another'),
      ownerState: () => Promise.resolve('open' as const),
    };
    await expect(open(spec, store, elsewhere)).rejects.toThrow(/is driven by workflow train\/unit/);
    expect(await store.head(runKey(`${run}~2`))).toBeNull();
  });

  test('to two different steps at the same time: one rewind succeeds, the other is refused', async () => {
    const store = await copy();
    const specs = await Promise.all([2, 3].map((at) => forkSpec(store, run, { run, step: at })));
    const answers = await Promise.allSettled(specs.map((spec) => open(spec, store)));
    const refused = answers.filter(({ status }) => status === 'rejected');
    expect(refused).toHaveLength(1);
    expect(refused[0]).toMatchObject({ reason: { name: 'InvalidSpec' } });
    expect(await store.listFolder(namesFolder(run))).toEqual(['1.json', '2.json']);
    expect((await auditRun(store, `${run}~2`)).violations).toEqual([]);
  });
});
