// A run that an earlier version began: whoever reads it refuses it by one error, which says what to do.
import { describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import { DatasetCache } from '../../../src/data/dataset-cache.js';
import { RunDataCache } from '../../../src/data/run-data.js';
import { schemaVersions } from '../../../src/spec/records/record-kinds.js';
import { ownersFolder, runKey } from '../../../src/store/record-keys.js';
import { openStore } from '../../../src/store/open-store.js';
import { sequenceNumbers } from '../../../src/store/records/records.js';
import { run, tamper, workflow } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';

useHarness();

const newest = schemaVersions.run;

describe('a run that an earlier version began', () => {
  const refusal = expect.stringMatching(
    `${runKey(run)} has schema longhaul.run/${newest - 1}: .*Finish it with the version that began it, or start it again`,
  ) as string;
  const refused = { type: 'OlderSchema', nonRetryable: true, message: refusal };

  /** Opens a run in another process, after the run's record has got an earlier version's number. */
  async function openAfterUpgrade(spec: unknown): Promise<unknown> {
    const store = await openStore(harness.store.address);
    const runs = new RunDataCache(store, new DatasetCache(store));
    const { openRun } = createOrchestratorActivities({ ...harness.orchestrator, store, runs });
    return harness.attempt('open', () => openRun({ spec, workflow }));
  }

  async function takeByEarlierVersion(steps: number): Promise<void> {
    await harness.advance(steps);
    await tamper(harness.store, runKey(run), (bytes) =>
      bytes.toString().replace(`longhaul.run/${newest}`, `longhaul.run/${newest - 1}`),
    );
  }

  it('is refused when it is started, before it gets a new owner or waits for a node', async () => {
    await takeByEarlierVersion(1);
    const owners = await sequenceNumbers(harness.store, ownersFolder(run));
    await expect(openAfterUpgrade(harness.spec)).rejects.toMatchObject(refused);
    expect(await sequenceNumbers(harness.store, ownersFolder(run))).toEqual(owners);
  });

  it('is refused when it is forked or rebased, and no fork is left behind', async () => {
    await takeByEarlierVersion(2);
    const fork = { run, step: 1 };
    await expect(openAfterUpgrade({ ...harness.spec, name: 'fork', fork })).rejects.toMatchObject(refused);
    const { numerics } = await harness.engine.info();
    const rebase = { ...{ run, step: 0 }, rebase: { to: 1, numerics } };
    await expect(openAfterUpgrade({ ...harness.spec, name: 'rebased', fork: rebase })).rejects.toMatchObject(
      refused,
    );
    for (const name of ['fork', 'rebased']) expect(await harness.store.head(runKey(name))).toBeNull();
  });

  it('is not audited: the error names the record', async () => {
    await takeByEarlierVersion(1);
    await expect(auditRun(await openStore(harness.store.address), run)).rejects.toMatchObject({
      name: 'OlderSchema',
      message: refusal,
    });
  });
});
