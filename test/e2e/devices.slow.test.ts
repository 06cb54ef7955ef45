// A run moves from an engine on the CPU to one on the emulated GPU and back, with kills between, or leaves a node whose GPU has erred: it ends
// in the state of an undisturbed run.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { readUpdates } from '../../src/store/runs/run-records.js';
import { checkpointNowUpdate, pauseUpdate, resumeUpdate, statusQuery } from '../../src/workflows/messages.js';
import type { Cluster } from '../support/cluster/cluster.js';
import { findEmulatedEngine, findEngine } from '../support/find-tools.js';
import { borrowCluster, returnCluster } from '../support/cluster/shared-cluster.js';
import { smallRun } from '../support/small-run.js';
import { undisturbedVerdict } from '../support/cluster/undisturbed.js';
import { until } from '../support/until.js';
import type { WorkerProcess } from '../support/worker-process.js';
import { expectEqual, type Verdict } from '../support/verdict.js';

const erringEngine = fileURLToPath(new URL('../engine/erring-engine.mjs', import.meta.url));

/** The emulated GPU needs ten seconds of processor time for a step, and may have a twentieth of a processor. */
const emulatedStepMs = 240_000;

describe('a run on several devices', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;
  beforeAll(async () => {
    cluster = await borrowCluster();
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(() => returnCluster(cluster));

  it('goes from the CPU to a GPU and back to the CPU, and ends in the same state', async () => {
    const [first] = cluster.nodes;
    if (!first) throw new Error('there is no node');
    const run = await cluster.run(spec.named('moved'));
    /** `checkpoint`: waits for one of the state after `step`, so that the next node does not compute the step again. */
    const stopAfter = async (step: number, node: WorkerProcess, checkpoint = false): Promise<void> => {
      const point = `update-recorded.step-00000${step}.update`;
      node.hold(point);
      await until(() => node.hasReached(point), `${node.name} to reach ${point}`, emulatedStepMs);
      await run.executeUpdate(pauseUpdate);
      if (checkpoint) await run.executeUpdate(checkpointNowUpdate);
      node.letGo(point);
      await until(async () => {
        const { phase, lastCheckpoint } = await run.query(statusQuery);
        return phase === 'paused' && (!checkpoint || lastCheckpoint === step);
      }, `the run to be paused after step ${step}`);
      await node.kill();
      await until(async () => (await run.query(statusQuery)).node === null, 'the pool to miss the node');
    };
    await stopAfter(1, first, true);
    const gpu = await cluster.startNode('gpu', ['--engine', findEmulatedEngine()]);
    await run.executeUpdate(resumeUpdate);
    await stopAfter(2, gpu);
    expect(gpu.log).toContain('computes on emulated device');
    await cluster.startNode('last');
    await run.executeUpdate(resumeUpdate);
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    const devices = (await readUpdates(cluster.store, 'moved', 1, 4)).map(({ observed }) => observed.device);
    expect(devices).toEqual([undefined, 'emulated device', undefined, undefined]);
    await expectEqual(cluster.store, 'moved', undisturbed);
  });

  it('leaves a node whose GPU has erred, and ends in the same state on another', async () => {
    for (const node of cluster.nodes) await node.kill();
    const env = { LONGHAUL_RIGHT_ENGINE: findEngine() };
    const erring = await cluster.startNode('erring', ['--engine', erringEngine], env);
    const { pid } = erring;
    const run = await cluster.run(spec.named('erred'));
    await until(() => Promise.resolve(!existsSync(`/proc/${pid}`)), 'the node to leave');
    expect(erring.log).toContain(
      'this node leaves, and its work goes on elsewhere: this update is not applied',
    );
    await cluster.startNode('right');
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'erred', undisturbed);
  });
});
