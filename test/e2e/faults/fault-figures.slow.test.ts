// The figures ft/* of a run whose processes are really killed. Each death is counted once, the times fit what the test has measured, and
// status, report and a complete restart give the same figures.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster, RunHandle } from '../../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../../support/cluster/shared-cluster.js';
import { smallRun } from '../../support/small-run.js';
import { until } from '../../support/until.js';
import { expectEqual, verdictOf } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { type Faults, faultsOf, readAttempts } from '../../../src/report/history/faults.js';
import { readHistory } from '../../../src/report/history/run-history.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import type { FaultFigures } from '../../../src/store/runs/fault-figures.js';
import { openStore } from '../../../src/store/open-store.js';
import { nodeLostAfterMs, type RevokedLease, statusQuery } from '../../../src/workflows/messages.js';

let cluster: Cluster;
let spec: { named(name: string): RunSpec };
beforeAll(async () => {
  cluster = await borrowCluster();
  spec = await smallRun(join(cluster.folder, 'data'));
});
afterAll(() => returnCluster(cluster));

const node = (): WorkerProcess => cluster.nodes[0]!;
const orchestrator = (): WorkerProcess => cluster.orchestrators[0]!;

/** Counts the faults from the store alone. */
async function counted(run: string): Promise<Faults> {
  const store = await openStore(cluster.storeAddress);
  const history = await readHistory(store, run);
  return faultsOf(history, await readAttempts(store, history));
}

async function told(run: RunHandle): Promise<FaultFigures> {
  const { faults } = await until(() => run.query(statusQuery).catch(() => null), 'the run to answer');
  return faults ?? {};
}

/**
 * Times at which the pool considered the run's node lost, by the server's clock, in ms. On a very slow machine a killed worker may come
 * back too late, and a living worker may report too late; both count as a further loss.
 */
async function losses(run: RunHandle): Promise<number[]> {
  const { events } = await run.fetchHistory();
  return (events ?? []).flatMap(({ eventTime, workflowExecutionSignaledEventAttributes: signal }) => {
    if (signal?.signalName !== 'revoked') return [];
    const said = JSON.parse(Buffer.from(signal.input?.payloads?.[0]?.data ?? []).toString()) as RevokedLease;
    return said.reason === 'lost' ? [Number(eventTime?.seconds) * 1000 + (eventTime?.nanos ?? 0) / 1e6] : [];
  });
}

const restarts = (figures: FaultFigures) =>
  Object.fromEntries(Object.entries(figures).filter(([name]) => name.startsWith('ft/restarts/')));

async function killEngine(): Promise<void> {
  const pid = node().enginePid();
  if (pid === null) throw new Error('there is no engine to kill');
  process.kill(pid, 'SIGKILL');
  await until(() => node().enginePid() !== pid, 'the engine to be gone');
}

/** Waits until `worker` is held at the point, runs `meanwhile`, and releases the point. */
async function at(point: string, worker: WorkerProcess, meanwhile: () => Promise<void>): Promise<void> {
  await until(() => worker.hasReached(point), `${worker.name} to reach ${point}`);
  await meanwhile();
  worker.letGo(point);
}

describe('the figures ft/*', () => {
  it('show only an ETTR close to 1 if nothing has failed', async () => {
    const run = await cluster.run(spec.named('nothing-failed'));
    await cluster.ended(run);
    const { figures, causes } = await counted('nothing-failed');
    expect(causes).toEqual([]);
    expect(restarts(figures)).toEqual({});
    expect(figures['ft/lost_tokens']).toBeUndefined();
    expect(figures['ft/ettr']).toBeGreaterThan(0.9);
    expect(await told(run)).toEqual(figures);
  });

  it('count each death once, say what it cost, and survive the death of all processes', async () => {
    const points = {
      collect: 'episode-written.step-000002.collect',
      batch: 'batch-built.step-000003.update',
      plan: 'plan-built.step-000004.plan',
      update: 'update-computed.step-000004.update',
    };
    for (const point of [points.collect, points.batch, points.update]) node().hold(point);
    orchestrator().hold(points.plan);
    const begun = performance.now();
    const run = await cluster.run(spec.named('disturbed'));
    await at(points.collect, node(), killEngine);
    await at(points.batch, node(), killEngine);
    await at(points.plan, orchestrator(), async () => {
      await orchestrator().kill();
      orchestrator().letGo(points.plan);
      orchestrator().start();
    });
    let killedAt = 0;
    let lastKill = 0;
    await at(points.update, node(), async () => {
      lastKill = Date.now();
      await node().kill();
      killedAt = performance.now();
      node().letGo(points.update);
      node().start();
    });
    await cluster.ended(run);
    const seconds = (performance.now() - begun) / 1000;
    const sinceKill = (performance.now() - killedAt) / 1000;
    await expectEqual(cluster.store, 'disturbed', await verdictOf(cluster.store, 'nothing-failed'));

    const { figures, causes } = await counted('disturbed');
    const lost = await losses(run);
    const wasLate = lost.some((time) => time >= lastKill);
    expect(restarts(figures)).toEqual({
      'ft/restarts/engine_exit': 2,
      'ft/restarts/orchestrator_restart': 1,
      ...(wasLate ? {} : { 'ft/restarts/worker_restart': 1 }),
      ...(lost.length > 0 ? { 'ft/restarts/node_lost': lost.length } : {}),
    });
    const of = (cause: string): FaultFigures => causes.find((one) => one.cause === cause)?.figures ?? {};
    const restarted = of(wasLate ? 'placed' : 'worker_restart');
    // The state after step 3 is restored from a checkpoint and the logged updates after it.
    expect(restarted['ft/replayed_steps']).toBeGreaterThanOrEqual(1);
    expect(restarted['ft/restore_bytes']).toBeGreaterThan(0);
    if (!wasLate) {
      expect(restarted['ft/detection_seconds']).toBeGreaterThan(0);
      expect(restarted['ft/detection_seconds']).toBeLessThan(sinceKill);
      expect((restarted['ft/restore_seconds'] ?? 0) + (restarted['ft/replay_seconds'] ?? 0)).toBeLessThan(
        restarted['ft/lost_seconds']!,
      );
    }
    expect(figures['ft/lost_seconds']).toBeGreaterThan(restarted['ft/detection_seconds'] ?? 0);
    expect(figures['ft/lost_seconds']).toBeLessThan(seconds);
    expect(figures['ft/ettr']).toBeGreaterThan(0);
    expect(figures['ft/ettr']).toBeLessThan(1);

    expect((await counted('disturbed')).figures).toEqual(figures);
    expect(await told(run)).toEqual(figures);
    await Promise.all([node().kill(), orchestrator().kill()]);
    node().start();
    orchestrator().start();
    expect(await told(run)).toEqual(figures);
    expect((await counted('disturbed')).figures).toEqual(figures);
  });

  it('count a killed node once if it was considered lost and then comes back', async () => {
    const point = 'batch-built.step-000003.update';
    node().hold(point);
    const run = await cluster.run(spec.named('returned'));
    await at(point, node(), async () => {
      const lost = async (): Promise<boolean> => (await losses(run)).length > 0;
      await node().kill();
      await until(lost, 'the node to be taken for lost');
    });
    node().start();
    await cluster.ended(run);
    const { figures, causes } = await counted('returned');
    expect(restarts(figures)).toEqual({ 'ft/restarts/node_lost': (await losses(run)).length });
    expect(causes.map(({ cause }) => cause)).toEqual(['node_lost', 'placed']);
    expect(figures['ft/lost_seconds']).toBeGreaterThanOrEqual(nodeLostAfterMs / 1000);
    expect(await told(run)).toEqual(figures);
  });

  it('count a node once if it leaves on SIGTERM during an update and comes back', async () => {
    const point = 'batch-built.step-000003.update';
    node().hold(point);
    const run = await cluster.run(spec.named('left'));
    await at(point, node(), async () => {
      await node().leave();
    });
    node().start();
    await cluster.ended(run);
    const { figures } = await counted('left');
    expect(restarts(figures)).toEqual({ 'ft/restarts/node_drained': 1 });
    expect(await told(run)).toEqual(figures);
  });

  it('count a node that is lost for ever, but no restart of the node that continues the run', async () => {
    const nodes = [node(), await cluster.startNode('other')];
    const point = 'batch-built.step-000003.update';
    for (const one of nodes) one.hold(point);
    const moved = spec.named('lost-for-ever');
    // Without a checkpoint, whose upload would race with the kill, both steps before are computed again.
    const run = await cluster.run({ ...moved, trainer: { ...moved.trainer, ckpt_interval: 100 } });
    const { first } = await cluster.firstAt(point, nodes);
    await first.kill();
    await cluster.ended(run);
    const { figures, causes } = await counted('lost-for-ever');
    expect(restarts(figures)).toEqual({ 'ft/restarts/node_lost': 1 });
    expect(causes).toMatchObject([
      { cause: 'node_lost', count: 1, figures: { 'ft/lost_seconds': nodeLostAfterMs / 1000 } },
      { cause: 'placed', count: 0, figures: { 'ft/replayed_steps': 2 } },
    ]);
    expect(figures['ft/lost_seconds']).toBeGreaterThanOrEqual(nodeLostAfterMs / 1000);
    expect(figures['ft/ettr']).toBeLessThan(1);
    expect(await told(run)).toEqual(figures);
  });
});
