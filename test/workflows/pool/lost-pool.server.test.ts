// A terminated pool: everything that it knew is lost, and that costs only time.
import { describe, expect, it } from 'vitest';
import { placing } from '../../../src/workflows/policies.js';
import { hurriedTimes, type PoolStage, shortScript, usePool } from './pool-stage.js';
import { gate, uniqueName, until } from '../scripted-run.js';

describe('a pool that is terminated', () => {
  let stage: PoolStage;
  usePool((opened) => (stage = opened), {}, hurriedTimes);

  it('starts again with the next report, and every run continues', async () => {
    const local = uniqueName('node');
    await stage.node(local);
    const [working, waiting] = [shortScript('working'), shortScript('waiting')];
    const held = gate();
    working.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
    const worker = await stage.run(working);
    await held.reached;
    const other = uniqueName('node');
    await stage.node(other);
    const [sharing, shared, joined] = [shortScript('sharing'), gate(), gate()];
    sharing.before = (call) => ({ 'collect 2': shared, 'collect 3': joined })[call]?.wait();
    const { openRun } = sharing.activities;
    sharing.activities.openRun = async (input) => ({
      ...(await openRun(input)),
      placement: { priority: 0, nodes: 2 },
    });
    const sharer = await stage.run(sharing);
    await shared.reached;
    await stage.until(({ queue }) => queue.length === 1);
    const waiter = await stage.run(waiting);
    await until(waiter, ({ phase }) => phase === 'placing');
    await stage.pool.terminate();
    held.release();
    expect(await worker.result()).toMatchObject({ step: 3 });
    await stage.until(({ nodes }) => nodes.some(({ id }) => id === local));
    const later = await stage.run(shortScript('later'));
    expect(await later.result()).toMatchObject({ step: 3 });
    // It asks again by itself, a minute after its first request. The workflows of this test wait for a shorter time.
    expect(placing.firstAskAgainMs).toBeLessThanOrEqual(60_000);
    expect(await waiter.result()).toMatchObject({ step: 3 });
    // The run that may use a second node also asks again, before its next step.
    shared.release();
    await joined.reached;
    await until(sharer, ({ sharingNodes }) => sharingNodes.length === 1);
    joined.release();
    expect(await sharer.result()).toMatchObject({ step: 3 });
  });
});
