// A worker is frozen at a named point and Temporal considers it lost. Another worker takes over and finishes the step. Then the first
// worker wakes and goes on as if nothing had happened: whatever it still writes must change nothing.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster, RunHandle } from '../../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../../support/cluster/shared-cluster.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import {
  batchKey,
  checkpointManifestKey,
  episodesFolder,
  planKey,
  updateKey,
} from '../../../src/store/record-keys.js';
import { checkpointHome } from '../../../src/store/runs/checkpoints.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readRun } from '../../../src/store/runs/run-records.js';

describe('a worker that wakes too late', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await borrowCluster({ nodes: 2, orchestrators: 2 });
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(() => returnCluster(cluster));

  const exists = (key: string) => async () => (await cluster.store.head(key)) !== null;

  /** Holds all workers at these points and starts the run. */
  async function started(name: string, points: readonly string[]): Promise<RunHandle> {
    for (const point of points) for (const worker of workersAt(point)) worker.hold(point);
    return cluster.run(spec.named(name));
  }

  const workersAt = (point: string): readonly WorkerProcess[] =>
    point.startsWith('plan') ? cluster.orchestrators : cluster.nodes;

  /**
   * Freezes the worker that reaches `point` first, and gives its open attempts to the other worker. When what `frozen` returns holds, the late
   * attempts wake and end, while the run goes on.
   */
  async function overtaken(point: string, frozen: () => Promise<() => Promise<unknown>>): Promise<void> {
    const { first } = await cluster.firstAt(point, workersAt(point));
    first.freeze();
    const late = first.openAttempts();
    expect(late.length, point).toBeGreaterThan(0);
    const goneOn = await frozen();
    expect(await first.failOpenAttempts(cluster.temporal.client.activity), point).not.toEqual([]);
    await until(goneOn, `the second worker to go on from ${point}`);
    first.letGo(point);
    first.wake();
    await until(
      () => !first.openAttempts().some((attempt) => late.includes(attempt)),
      `the late attempts of ${first.name} to end`,
    );
  }

  async function endsLikeUndisturbed(run: RunHandle, name: string): Promise<void> {
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, name, undisturbed);
  }

  it('frozen before its plan, after its batch and after its update, adopts what the other worker wrote', async () => {
    const planBuilt = 'plan-built.step-000002.plan';
    const batchBuilt = 'batch-built.step-000003.update';
    const updateComputed = 'update-computed.step-000004.update';
    const run = await started('before', [planBuilt, batchBuilt, updateComputed]);
    await overtaken(planBuilt, async () => {
      expect(await cluster.store.head(planKey('before', 2))).toBeNull();
      return exists(updateKey('before', 2));
    });
    await overtaken(batchBuilt, () => Promise.resolve(exists(updateKey('before', 3))));
    let record: Uint8Array | null = null;
    await overtaken(updateComputed, async () => {
      expect(await cluster.store.head(updateKey('before', 4))).toBeNull();
      return async () => (record = await cluster.store.get(updateKey('before', 4)));
    });
    await endsLikeUndisturbed(run, 'before');
    expect(await cluster.store.get(updateKey('before', 4))).toEqual(record);
  });

  it('frozen after its first episodes, after its plan and before a manifest, leaves what the other worker wrote', async () => {
    const episodeWritten = 'episode-written.step-000002.collect';
    const planWritten = 'plan-written.step-000003.plan';
    const dataWritten = 'checkpoint-data-written.step-000004.upload';
    const run = await started('after', [episodeWritten, planWritten, dataWritten]);
    await overtaken(episodeWritten, async () => {
      expect(await cluster.store.listFolder(episodesFolder('after', 2))).not.toEqual([]);
      return exists(updateKey('after', 2));
    });
    let plan: Uint8Array | null = null;
    await overtaken(planWritten, async () => {
      plan = await cluster.store.get(planKey('after', 3));
      expect(plan).not.toBeNull();
      return exists(updateKey('after', 3));
    });
    await overtaken(dataWritten, async () => {
      const manifest = checkpointManifestKey(checkpointHome(await readRun(cluster.store, 'after')), 4);
      expect(await cluster.store.head(manifest)).toBeNull();
      return exists(manifest);
    });
    await endsLikeUndisturbed(run, 'after');
    expect(await cluster.store.get(planKey('after', 3))).toEqual(plan);
  });

  it('whose reply is lost, whose engine dies, or that dies with it, after an update: it is applied once', async () => {
    const updateRecorded = 'update-recorded.step-000002.update';
    const engineDies = 'update-computed.step-000003.update';
    const bothDie = 'update-computed.step-000004.update';
    const run = await started('applied', [updateRecorded, engineDies, bothDie]);
    const observed = async () =>
      (await requireRecord(cluster.store, updateKey('applied', 2), 'update')).observed;
    let before: unknown;
    await overtaken(updateRecorded, async () => {
      before = await observed();
      return exists(batchKey('applied', 3));
    });

    const { first: engineless } = await cluster.firstAt(engineDies, cluster.nodes);
    const engine = engineless.enginePid();
    expect(engine).not.toBeNull();
    process.kill(engine ?? 0, 'SIGKILL');
    await until(() => engineless.enginePid() !== engine, 'the engine to be gone');
    engineless.letGo(engineDies);

    const { first: killed } = await cluster.firstAt(bothDie, cluster.nodes);
    await killed.kill();
    expect(await cluster.store.head(updateKey('applied', 4))).toBeNull();
    killed.letGo(bothDie);
    killed.start();
    await endsLikeUndisturbed(run, 'applied');
    expect(await observed()).toEqual(before);
  });
});
