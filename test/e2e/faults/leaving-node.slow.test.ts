// A node that must leave (SIGTERM, from a spot notice or a deployment) saves its state and releases its runs within its grace period.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster } from '../../support/cluster/cluster.js';
import { untilReported } from '../../support/detection.js';
import { borrowCluster, returnCluster } from '../../support/cluster/shared-cluster.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { listCheckpoints } from '../../../src/store/runs/checkpoints.js';
import { readRun } from '../../../src/store/runs/run-records.js';
import { statusQuery } from '../../../src/workflows/messages.js';

/** A run that is not notified waits this long. The notification takes a fraction of it, even on a busy machine. */
const heartbeatSeconds = 10;

describe('a node that must leave', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;
  beforeAll(async () => {
    cluster = await borrowCluster();
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
    await cluster.scaleNodes(0);
  });
  afterEach(() => cluster?.nodesLeave());
  afterAll(() => returnCluster(cluster));

  it('ends within its grace period even if its work does not end, and at once at a second signal', async () => {
    const node = await cluster.startNode('stuck', ['--grace', '6']);
    const points = [1, 2].map((step) => `update-recorded.step-00000${step}.update`);
    for (const point of points) node.hold(point);
    const run = await cluster.run(spec.named('stuck'));
    const [first = '', second = ''] = points;
    await cluster.firstAt(first, [node]);
    const left = await node.leave();
    expect(left).toMatchObject({ code: 0 });
    expect(left.seconds).toBeLessThan(6);
    expect(node.log).toContain('ended before its work had ended');

    node.start();
    await cluster.firstAt(second, [node]);
    const ended = await node.leave(['SIGTERM', 'SIGINT']);
    expect(ended).toMatchObject({ code: 1 });
    expect(ended.seconds).toBeLessThan(2);

    node.letGo(second);
    node.start();
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
  });

  it('brings its last state to the store, and the run continues from it on another node at once', async () => {
    const { orchestrators } = cluster;
    const [orchestrator] = orchestrators;
    const first = await cluster.startNode('first');
    const point = 'plan-written.step-000004.plan';
    orchestrator?.hold(point);
    const run = await cluster.run(spec.named('drained'));
    await cluster.firstAt(point, orchestrators);
    await until(async () => (await run.query(statusQuery)).lastCheckpoint === 2, 'the checkpoint of step 2');
    expect((await run.query(statusQuery)).node).toBe('first');
    const second = await cluster.startNode('second');
    await untilReported(cluster.temporal.client, 'second');
    // Its episodes wait for the environment server until the node has left.
    cluster.environments.child.kill('SIGSTOP');
    try {
      orchestrator?.letGo(point);
      await until(() => first.openAttempts().length > 0, 'the collect of step 4');
      const left = first.leave();
      const moved = performance.now();
      await until(() => second.openAttempts().length > 0, 'the run to be on the second node');
      const seconds = (performance.now() - moved) / 1000;
      const { code, seconds: took } = await left;
      console.log(
        `a run left a draining node in ${seconds.toFixed(2)} s; the node took ${took.toFixed(2)} s`,
      );
      expect(code).toBe(0);
      expect(took).toBeLessThan(25);
      expect(seconds).toBeLessThan(heartbeatSeconds / 2);
    } finally {
      cluster.environments.child.kill('SIGCONT');
    }
    expect(await listCheckpoints(cluster.store, await readRun(cluster.store, 'drained'))).toEqual([2, 3]);
    rmSync(join(cluster.folder, 'node-first', 'worker'), { recursive: true });
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    expect(second.log).toContain('restored drained step 3');
    await expectEqual(cluster.store, 'drained', undisturbed);
  });
});
