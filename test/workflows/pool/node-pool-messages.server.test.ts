// The messages between the pool and its runs: they arrive in order, and end when the run ends.
import { describe, expect, it } from 'vitest';
import { suspectSignal } from '../../../src/workflows/messages.js';
import { heldScript, type PoolStage, usePool } from './pool-stage.js';
import { uniqueName, until } from '../scripted-run.js';

describe('the messages between the pool and a run', () => {
  let stage: PoolStage;
  usePool((opened) => (stage = opened));

  it('are sent one at a time: the next message waits until the previous message has arrived', async () => {
    await stage.node(uniqueName('a'));
    const script = heldScript('told', 2);
    const run = await stage.run(script);
    await script.held.reached;
    const { leases } = await stage.until(({ queue }) => queue.length === 1);
    const { lease, node } = leases[0]!;
    // The lease ends, and the reason why the run's other request waits changes.
    await stage.pool.signal(suspectSignal, { lease, node });
    await stage.until(({ leases: held }) => held.some((one) => one.lease !== lease));
    await run.terminate();
    const { events } = await stage.pool.fetchHistory();
    const sent: string[] = [];
    const underWay = new Set<string>();
    for (const event of events ?? []) {
      const initiated = event.signalExternalWorkflowExecutionInitiatedEventAttributes;
      const arrived = event.externalWorkflowExecutionSignaledEventAttributes;
      if (initiated) {
        sent.push(initiated.signalName ?? '');
        underWay.add(String(event.eventId));
        expect(underWay.size).toBe(1);
      }
      if (arrived) underWay.delete(String(arrived.initiatedEventId));
    }
    expect(sent.slice(0, 4)).toEqual(['granted', 'waiting', 'revoked', 'waiting']);
  });

  it('end if the run is gone before a message reaches it: the node is free at once, even if nobody waits', async () => {
    const script = heldScript('gone', 1);
    const run = await stage.run(script);
    await until(run, ({ waitsFor }) => waitsFor === 'no node is alive');
    await run.terminate();
    await stage.node(uniqueName('a'));
    await stage.until(({ leases, queue }) => leases.length === 0 && queue.length === 0);
  });

  it('end with the run, and so does its open request', async () => {
    await stage.node(uniqueName('a'));
    const script = heldScript('ends', 2);
    const run = await stage.run(script);
    await script.held.reached;
    await stage.until(({ queue }) => queue.length === 1);
    script.held.release();
    expect(await run.result()).toMatchObject({ step: 3 });
    await stage.until(({ leases, queue }) => leases.length === 0 && queue.length === 0);
  });
});
