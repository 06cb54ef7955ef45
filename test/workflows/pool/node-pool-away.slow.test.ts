// Two things that the pool notices only by time: that a run ended without releasing its lease, and that the pool itself was not served.
import { describe, expect, it } from 'vitest';
import { nodeLostAfterMs, nodeReportIntervalMs } from '../../../src/workflows/messages.js';
import { type PoolStage, shortScript, usePool } from './pool-stage.js';
import { gate, uniqueName, until } from '../scripted-run.js';

describe('the pool of nodes', { timeout: 300_000 }, () => {
  let stage: PoolStage;
  usePool((opened) => (stage = opened));

  it('takes a node within a minute from a terminated run if another run waits (R30)', async () => {
    await stage.node(uniqueName('node'));
    const [first, held] = [shortScript('gone'), gate()];
    first.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
    const gone = await stage.run(first);
    await held.reached;
    const waiter = await stage.run(shortScript('waits'));
    await until(waiter, ({ phase }) => phase === 'placing');
    await gone.terminate();
    expect(await waiter.result()).toMatchObject({ step: 3 });
  });

  it('loses no node after a time in which the pool was not served', async () => {
    const local = uniqueName('node');
    await stage.node(local);
    const [first, held] = [shortScript('stays'), gate()];
    first.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
    const run = await stage.run(first);
    await held.reached;
    const { leases } = await stage.view();
    await stage.outage(nodeLostAfterMs + nodeReportIntervalMs);
    const back = Date.now();
    await stage.until(({ nodes }) => nodes.some(({ lastSeen }) => lastSeen > back));
    expect((await stage.view()).leases).toEqual(leases);
    held.release();
    expect(await run.result()).toMatchObject({ step: 3 });
  });
});
