// A node is lost together with its disk, or is only cut off and comes back later. The run continues on another node and ends as if nothing
// had happened.
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster, RunHandle } from '../../support/cluster/cluster.js';
import { secondsUntilRevoked, untilReported } from '../../support/detection.js';
import { borrowCluster, returnCluster } from '../../support/cluster/shared-cluster.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { nodeLostAfterMs, statusQuery } from '../../../src/workflows/messages.js';

/** Extra time for the test's own polling of the pool on a busy machine. */
const askingSeconds = 1;

describe('a run whose node is lost', () => {
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

  /**
   * A run whose first node is held during the rollouts of step 4. The state after step 2 is in the store, the state after step 3 is not.
   */
  async function amidStep4(
    name: string,
  ): Promise<{ run: RunHandle; first: WorkerProcess; second: WorkerProcess }> {
    const first = await cluster.startNode(`${name}-first`);
    await untilReported(cluster.temporal.client, `${name}-first`);
    const point = 'episode-written.step-000004.collect';
    first.hold(point);
    const run = await cluster.run(spec.named(name));
    await cluster.firstAt(point, [first]);
    await until(async () => (await run.query(statusQuery)).lastCheckpoint === 2, 'the checkpoint of step 2');
    const second = await cluster.startNode(`${name}-second`);
    await untilReported(cluster.temporal.client, `${name}-second`);
    expect((await run.query(statusQuery)).node).toBe(`${name}-first`);
    return { run, first, second };
  }

  it('together with its disk continues on another node: nothing finished is sampled again, and one update is applied again', async () => {
    const { run, first, second } = await amidStep4('lost');
    const engine = first.enginePid();
    await first.kill();
    const noticed = secondsUntilRevoked(cluster.temporal.client, 'lost-first');
    if (engine !== null && existsSync(`/proc/${engine}`)) process.kill(engine, 'SIGKILL');
    rmSync(join(cluster.folder, 'node-lost-first', 'worker'), { recursive: true });
    const seconds = await noticed;
    console.log(`the loss of a node was noticed after ${seconds.toFixed(2)} s`);
    expect(seconds).toBeLessThan(nodeLostAfterMs / 1000 + askingSeconds);
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    expect(second.log).toContain('restored lost step 3: checkpoint 2 and 1 logged updates');
    await expectEqual(cluster.store, 'lost', undisturbed);
  });

  it('but comes back while the next node works: both finish the same step, and the result is the same', async () => {
    const { run, first, second } = await amidStep4('parted');
    // Hold every activity at this point: the first node may still run the activity with the usual name.
    const point = 'update-computed';
    second.hold(point);
    first.freeze();
    const seconds = await secondsUntilRevoked(cluster.temporal.client, 'parted-first');
    expect(seconds).toBeLessThan(nodeLostAfterMs / 1000 + askingSeconds);
    await cluster.firstAt(point, [second]);
    first.letGo('episode-written.step-000004.collect');
    first.wake();
    await until(() => first.openAttempts().length === 0, 'the first node to have ended what it was at');
    await untilReported(cluster.temporal.client, 'parted-first');
    second.letGo(point);
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'parted', undisturbed);
  });
});
