// Two things that the pool notices only by time: that a run ended without releasing its lease, and that the pool itself was not served.
import { describe, expect, it } from 'vitest';
import { nodeReportIntervalMs } from '../../../src/workflows/messages.js';
import { poolTimes } from '../../../src/workflows/policies.js';
import { hurriedPoolTimes, reportEveryMs } from '../hurried/times.js';
import { heldScript, hurriedTimes, type PoolStage, shortScript, usePool } from './pool-stage.js';
import { uniqueName, until, untilItWaitsFor } from '../scripted-run.js';

describe('the pool of nodes', () => {
  let stage: PoolStage;
  usePool((opened) => (stage = opened), {}, hurriedTimes);

  it('takes a node within a minute from a terminated run if another run waits (R30)', async () => {
    // The workflows of this test wait for a shorter time.
    expect(poolTimes.askEveryMs).toBeLessThanOrEqual(60_000);
    await stage.node(uniqueName('node'));
    const first = heldScript('gone');
    const gone = await stage.run(first);
    await first.held.reached;
    const waiter = await stage.run(shortScript('waits'));
    await until(waiter, ({ phase }) => phase === 'placing');
    await stage.until(({ queue }) => queue.length === 1);
    // The check that follows each new request finds the run still open.
    await untilItWaitsFor(stage.pool, []);
    await gone.terminate();
    expect(await waiter.result()).toMatchObject({ step: 3 });
  });

  it('loses no node after a time in which the pool was not served', async () => {
    // A pool that was away for one report of a node has missed it.
    expect(poolTimes.awayAfterMs).toBeLessThan(nodeReportIntervalMs);
    await stage.node(uniqueName('node'));
    const stays = heldScript('stays');
    const run = await stage.run(stays);
    await stays.held.reached;
    const { leases } = await stage.view();
    const { nodeLostAfterMs, awayAfterMs } = hurriedPoolTimes;
    await stage.outage(nodeLostAfterMs + awayAfterMs + reportEveryMs);
    const back = Date.now();
    await stage.until(({ nodes }) => nodes.some(({ lastSeen }) => lastSeen > back));
    expect((await stage.view()).leases).toEqual(leases);
    stays.held.release();
    expect(await run.result()).toMatchObject({ step: 3 });
  });
});
