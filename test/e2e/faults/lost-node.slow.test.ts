// A node is lost without a word, its disk with it, or it is only cut off and comes back: the run goes on elsewhere, and ends as if
// nothing had happened.
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Cluster, type RunHandle } from '../../support/cluster.js';
import { secondsUntilRevoked, untilReported } from '../../support/detection.js';
import { smallRun } from '../../support/small-run.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict, verdictOf } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { nodeLostAfterMs, statusQuery } from '../../../src/workflows/messages.js';

/** The pool is asked again and again, which takes its time on a busy machine. */
const askingSeconds = 1;

describe('a run whose node is lost', { timeout: 300_000 }, () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;
  beforeAll(async () => {
    cluster = await Cluster.start({ nodes: 0 });
    spec = await smallRun(join(cluster.folder, 'data'));
    await cluster.startNode('before');
    await cluster.ended(await cluster.run(spec.named('undisturbed')));
    undisturbed = await verdictOf(cluster.store, 'undisturbed');
    await cluster.nodesLeave();
  }, 300_000);
  afterEach(() => cluster?.nodesLeave());
  afterAll(() => cluster?.stop());

  /** A run whose first node is held amid the rollouts of step 4, when the state after step 2 is stored and the one after 3 is not. */
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

  it('with its disk goes on on another one from the store: nothing finished is sampled again, one update is applied again', async () => {
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

  it('and comes back amid the work of the next one: both finish the same step, and nobody can tell', async () => {
    const { run, first, second } = await amidStep4('parted');
    // Whatever its activity is called there: the name may still be taken by the one that the first node has.
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
