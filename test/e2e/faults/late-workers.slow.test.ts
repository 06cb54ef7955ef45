// A worker is frozen at a named point and Temporal considers it lost. Another worker takes over and finishes the step. Then the first
// worker wakes and goes on as if nothing had happened: whatever it still writes must change nothing.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster, type RunHandle } from '../../support/cluster.js';
import { smallRun } from '../../support/small-run.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict, verdictOf } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import {
  batchKey,
  checkpointManifestKey,
  episodesFolder,
  planKey,
  updateKey,
} from '../../../src/store/objects/layout.js';
import { checkpointHome } from '../../../src/store/runs/checkpoints.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readRun } from '../../../src/store/runs/run-records.js';

describe('a worker that wakes too late', { timeout: 240_000 }, () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await Cluster.start({ nodes: 2, orchestrators: 2 });
    spec = await smallRun(join(cluster.folder, 'data'));
    await cluster.ended(await cluster.run(spec.named('undisturbed')));
    undisturbed = await verdictOf(cluster.store, 'undisturbed');
    // Every step must change the weights: otherwise equal digests would prove little.
    expect(undisturbed).toMatchObject({ violations: [], applied: 4 });
  }, 240_000);
  afterAll(() => cluster?.stop());

  const exists = (key: string) => async () => (await cluster.store.head(key)) !== null;

  /** Freezes the first of `workers` that reaches `point`, and gives its open attempts to the other worker. */
  async function overtaken(name: string, point: string, workers: readonly WorkerProcess[]) {
    for (const worker of workers) worker.hold(point);
    const run = await cluster.run(spec.named(name));
    const { first, second } = await cluster.firstAt(point, workers);
    first.freeze();
    const late = first.openAttempts();
    expect(late.length).toBeGreaterThan(0);
    expect(await first.failOpenAttempts(cluster.temporal.client.activity)).not.toEqual([]);
    return { run, first, second, late };
  }

  /** Wakes the late attempts and waits for their end, while the run goes on. */
  async function wakes(first: WorkerProcess, point: string, late: readonly string[]): Promise<void> {
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

  it('frozen after it built its batch, finds the batch that the other worker sealed and committed', async () => {
    const point = 'batch-built.step-000002.update';
    const { run, first, late } = await overtaken('batch-built', point, cluster.nodes);
    await until(exists(updateKey('batch-built', 2)), 'the second worker to commit step 2');
    await wakes(first, point, late);
    await endsLikeUndisturbed(run, 'batch-built');
  });

  it('frozen after it wrote its first episodes, adopts the episodes that the other worker played', async () => {
    const point = 'episode-written.step-000002.collect';
    const { run, first, late } = await overtaken('episode-written', point, cluster.nodes);
    expect(await cluster.store.listFolder(episodesFolder('episode-written', 2))).not.toEqual([]);
    await until(exists(updateKey('episode-written', 2)), 'the second worker to commit step 2');
    await wakes(first, point, late);
    await endsLikeUndisturbed(run, 'episode-written');
  });

  it('frozen after it wrote its plan, leaves the plan that the run has adopted', async () => {
    const point = 'plan-written.step-000003.plan';
    const { run, first, late } = await overtaken('plan-written', point, cluster.orchestrators);
    const plan = await cluster.store.get(planKey('plan-written', 3));
    await until(exists(updateKey('plan-written', 3)), 'step 3 to be committed');
    await wakes(first, point, late);
    await endsLikeUndisturbed(run, 'plan-written');
    expect(await cluster.store.get(planKey('plan-written', 3))).toEqual(plan);
  });

  it('frozen before it wrote its plan, adopts the other worker’s plan', async () => {
    const point = 'plan-built.step-000002.plan';
    const { run, first, late } = await overtaken('plan-built', point, cluster.orchestrators);
    expect(await cluster.store.head(planKey('plan-built', 2))).toBeNull();
    await until(exists(updateKey('plan-built', 2)), 'step 2 to be committed');
    await wakes(first, point, late);
    await endsLikeUndisturbed(run, 'plan-built');
  });

  it('frozen after it computed an update, finds the same update recorded by the other worker', async () => {
    const point = 'update-computed.step-000002.update';
    const { run, first, late } = await overtaken('update-computed', point, cluster.nodes);
    expect(await cluster.store.head(updateKey('update-computed', 2))).toBeNull();
    const record = await until(
      () => cluster.store.get(updateKey('update-computed', 2)),
      'the second worker to compute and commit step 2',
    );
    await wakes(first, point, late);
    await endsLikeUndisturbed(run, 'update-computed');
    expect(await cluster.store.get(updateKey('update-computed', 2))).toEqual(record);
  });

  it('whose reply was lost after it recorded an update, is believed because of the record: nothing is applied twice', async () => {
    const point = 'update-recorded.step-000002.update';
    const { run, first, late } = await overtaken('update-recorded', point, cluster.nodes);
    const { observed } = await requireRecord(cluster.store, updateKey('update-recorded', 2), 'update');
    await until(exists(batchKey('update-recorded', 3)), 'the second worker to seal step 3');
    await wakes(first, point, late);
    await endsLikeUndisturbed(run, 'update-recorded');
    expect((await requireRecord(cluster.store, updateKey('update-recorded', 2), 'update')).observed).toEqual(
      observed,
    );
  });

  it('frozen before the manifest of the last checkpoint, finds the checkpoint completed by the other worker', async () => {
    const point = 'checkpoint-data-written.step-000004.upload';
    const { run, first, late } = await overtaken('checkpoint', point, cluster.nodes);
    const manifest = checkpointManifestKey(checkpointHome(await readRun(cluster.store, 'checkpoint')), 4);
    expect(await cluster.store.head(manifest)).toBeNull();
    await until(exists(manifest), 'the second worker to complete the checkpoint');
    await wakes(first, point, late);
    await endsLikeUndisturbed(run, 'checkpoint');
  });

  it('whose engine dies after it applied an update loses nothing: the update is recorded and the state restored', async () => {
    const point = 'update-computed.step-000003.update';
    for (const node of cluster.nodes) node.hold(point);
    const run = await cluster.run(spec.named('engine-killed'));
    const { first } = await cluster.firstAt(point, cluster.nodes);
    const engine = first.enginePid();
    expect(engine).not.toBeNull();
    process.kill(engine ?? 0, 'SIGKILL');
    await until(() => first.enginePid() !== engine, 'the engine to be gone');
    first.letGo(point);
    await endsLikeUndisturbed(run, 'engine-killed');
  });

  it('killed with its engine after it applied an update, has the update computed again by another worker', async () => {
    const point = 'update-computed.step-000003.update';
    for (const node of cluster.nodes) node.hold(point);
    const run = await cluster.run(spec.named('both-killed'));
    const { first } = await cluster.firstAt(point, cluster.nodes);
    await first.kill();
    expect(await cluster.store.head(updateKey('both-killed', 3))).toBeNull();
    first.letGo(point);
    first.start();
    await endsLikeUndisturbed(run, 'both-killed');
  });
});
