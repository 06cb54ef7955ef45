// The Temporal server is killed while a run is open. It comes back with its database or with an empty one, and an attempt may outlive it.
// The history is only a convenience: the records are the run.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from '../../support/cluster/cluster.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { batchKey, ownersFolder, updateKey } from '../../../src/store/record-keys.js';
import { readSequence } from '../../../src/store/records/records.js';

/** temporal.api.enums.v1.PendingActivityState */
const cancelRequested = 3;

describe('a Temporal server that dies', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-temporal-'));
  const databaseFile = join(folder, 'temporal.db');
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await Cluster.start({ temporal: { databaseFile } });
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(async () => {
    await cluster?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const node = () => cluster.nodes[0] as (typeof cluster.nodes)[number];

  it('and times out an attempt that still runs: the newer attempt waits for the older one, and the batch is sealed once', async () => {
    const point = 'batch-built.step-000002.update';
    node().hold(point);
    let run = await cluster.run(spec.named('timed-out'));
    await cluster.firstAt(point, cluster.nodes);
    const [late] = node().openAttempts();
    await cluster.killTemporal();
    // The worker must not reach the new server before the attempt has timed out there.
    node().cutOff();
    await cluster.startTemporal({ databaseFile });
    run = cluster.followed(run);
    // The node's reports do not reach the pool either. Either the attempt times out or the lease ends; in both cases nobody waits for this
    // attempt any more.
    await until(async () => {
      const { raw } = await run.describe();
      const isUpdate = /\/update(\.\d+)?$/;
      const updates =
        raw.pendingActivities?.filter(({ activityId }) => isUpdate.test(activityId ?? '')) ?? [];
      return updates.every(({ attempt, state }) => (attempt ?? 0) > 1 || Number(state) === cancelRequested);
    }, 'the server to time the attempt out, or the run to call it off');
    expect(node().openAttempts()).toContain(late);
    node().reconnect();
    await until(() => node().openAttempts().length > 1, 'the newer attempt to come');
    expect(await cluster.store.head(batchKey('timed-out', 2))).toBeNull();
    node().letGo(point);
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'timed-out', undisturbed);
  });

  it('and comes back with its database: the run continues by itself', async () => {
    const point = 'episode-written.step-000003.collect';
    node().hold(point);
    const run = await cluster.run(spec.named('restarted'));
    await cluster.firstAt(point, cluster.nodes);
    await cluster.killTemporal();
    node().letGo(point);
    await cluster.startTemporal({ databaseFile });
    expect(await cluster.ended(cluster.followed(run))).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'restarted', undisturbed);
  });

  it('and comes back empty: the run is started again and continues from its records', async () => {
    const point = 'update-recorded.step-000003.update';
    node().hold(point);
    await cluster.run(spec.named('forgotten'));
    await cluster.firstAt(point, cluster.nodes);
    await cluster.killTemporal();
    node().letGo(point);
    await cluster.startTemporal();
    const before = await cluster.store.get(updateKey('forgotten', 3));
    const again = await cluster.run(spec.named('forgotten'));
    expect(await cluster.ended(again)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'forgotten', undisturbed);
    expect(await cluster.store.get(updateKey('forgotten', 3))).toEqual(before);
    // The new server answers that it does not know the first owner, so no take-over was needed.
    expect(await readSequence(cluster.store, ownersFolder('forgotten'), 'owner')).toHaveLength(2);
  });

  it.each([
    ['node', 'nodes', 'episode-written.step-000003.collect'],
    ['orchestrator', 'orchestrators', 'plan-written.step-000003.plan'],
  ] as const)(
    'together with all workers during work of the %s, and loses its database: the workers serve again, and the run continues',
    async (name, workers, point) => {
      const lostFile = join(folder, `lost-${name}.db`);
      await cluster.killTemporal();
      await cluster.startTemporal({ databaseFile: lostFile });
      const run = spec.named(`lost-with-${name}`);
      for (const worker of cluster[workers]) worker.hold(point);
      await cluster.run(run);
      const { first } = await cluster.firstAt(point, cluster[workers]);
      await cluster.killTemporal();
      const all = [...cluster.nodes, ...cluster.orchestrators];
      await Promise.all(all.map((worker) => worker.kill()));
      expect(first.openAttempts()).not.toEqual([]);
      for (const ending of ['', '-shm', '-wal']) rmSync(`${lostFile}${ending}`, { force: true });
      first.letGo(point);
      await cluster.startTemporal({ databaseFile: lostFile });
      // Each worker is started only once: a supervisor would give up on a process that does not serve.
      for (const worker of all) worker.start();
      expect(await cluster.ended(await cluster.run(run))).toMatchObject({ ended: 'completed', step: 4 });
      await expectEqual(cluster.store, run.name, undisturbed);
    },
  );
});
