// Leases while the pool and its runs continue as new.
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import type { LeaseRequest } from '../../../src/activities/contracts.js';
import { nodeUpSignal, type PoolView, requestSignal } from '../../../src/workflows/messages.js';
import { heldScript, type PoolStage, shortScript, usePool } from './pool-stage.js';
import { gate, outlineOf, type ScriptedRun, scriptRun, uniqueName } from '../scripted-run.js';

describe('a pool that often continues as new, like its runs', () => {
  let stage: PoolStage;
  usePool((opened) => (stage = opened), { dynamicConfig: { 'limit.historyCount.suggestContinueAsNew': 40 } });

  it('forgets no node, lease or request; a run that continues as new keeps its lease', async () => {
    const local = uniqueName('node');
    await stage.node(local);
    const first = scriptRun(
      outlineOf(uniqueName('first'), {
        phases: [{ name: 'grpo', kind: 'grpo', steps: 6 }],
        ...{ eval_interval: 0, ckpt_interval: 0 },
      }),
    );
    const [early, late] = [gate(), gate()];
    first.before = (call) => ({ 'collect 1': early, 'collect 6': late })[call]?.wait();
    const holder = await stage.run(first);
    await early.reached;
    const second = shortScript('second');
    const waiter = await stage.run(second);
    const before = await stage.until(({ queue }) => queue.length === 1);
    const { runId } = await stage.pool.describe();
    early.release();
    await late.reached;
    // Enough reports for several executions of the pool.
    for (let report = 0; report < 30; report++)
      await stage.pool.signal(nodeUpSignal, { ...before.nodes[0]!, lastSeen: undefined } as never);
    await expect.poll(async () => (await stage.pool.describe()).runId).not.toBe(runId);
    expect((await holder.describe()).runId).not.toBe(holder.firstExecutionRunId);
    const after = await stage.until(({ nodes }) => nodes.length === 1);
    expect(after.leases).toEqual(before.leases);
    expect(after.queue).toEqual(before.queue);
    late.release();
    expect(await stage.temporal.client.workflow.getHandle(holder.workflowId).result()).toMatchObject({
      step: 6,
    });
    expect(await waiter.result()).toMatchObject({ step: 3 });
    const asked = stage.requests.filter(({ holding }) => holding === undefined).map(({ run }) => run);
    expect(asked).toEqual([first.outline.run, second.outline.run]);
    expect(stage.requests.find(({ holding }) => holding)).toMatchObject({ holding: local });
  });

  it('loses no message to a run: the run releases, one by one, leases that it did not ask for', async () => {
    await stage.node(uniqueName('a'));
    const one = heldScript('one');
    const run = await stage.run(one);
    await one.held.reached;
    await stage.node(uniqueName('b'));
    const { runId } = await stage.pool.describe();
    const { workflowId, firstExecutionRunId } = run;
    for (let n = 1; n <= 24; n++)
      await stage.pool.signal(requestSignal, {
        ...{ lease: `unasked/${n}`, run: one.outline.run, project: 'tests', priority: 0, numerics: null },
        ...{ besides: [], workflowId, firstExecutionRunId },
      });
    const over = (view: PoolView): boolean => view.leases.length === 1 && view.queue.length === 0;
    expect((await stage.until(over)).leases).toMatchObject([{ run: one.outline.run }]);
    expect((await stage.pool.describe()).runId).not.toBe(runId);
    one.held.release();
    expect(await run.result()).toMatchObject({ step: 3 });
  });

  /** A run of eight steps on two nodes. */
  function sharing(name: string): ScriptedRun {
    const steps = [{ name: 'grpo', kind: 'grpo' as const, steps: 8 }];
    const run = scriptRun(outlineOf(uniqueName(name), { phases: steps, eval_interval: 0, ckpt_interval: 0 }));
    const { openRun } = run.activities;
    run.activities.openRun = async (input) => ({
      ...(await openRun(input)),
      placement: { priority: 0, nodes: 2 },
    });
    return run;
  }

  it('receives again the request for a second node that a run sent to an earlier pool', async () => {
    await stage.node(uniqueName('a'));
    const run = sharing('asks');
    const [early, late] = [gate(), gate()];
    run.before = (call) => ({ 'collect 2': early, 'collect 8': late })[call]?.wait();
    const handle = await stage.run(run);
    await early.reached;
    const { queue } = await stage.until(({ queue: waiters }) => waiters.length === 1);
    await stage.pool.terminate();
    await stage.node(uniqueName('b'));
    early.release();
    await late.reached;
    const { leases } = await stage.until(({ leases: held }) => held.length === 2);
    expect(leases.map(({ lease }) => lease)).toContain(queue[0]?.lease);
    late.release();
    const last = stage.temporal.client.workflow.getHandle(handle.workflowId);
    expect(await last.result()).toMatchObject({ step: 8 });
  });

  it('is never asked again for a node that disagreed with a record, even by later executions of the run', async () => {
    const [wrong, right] = [uniqueName('a'), uniqueName('b')];
    await stage.node(wrong, {
      called: (call) => {
        if (call.includes('collectRollouts 2'))
          throw ApplicationFailure.nonRetryable('step 1 was recomputed as another state', 'Diverged');
      },
    });
    await stage.node(right);
    const run = sharing('shuns');
    const handle = await stage.run(run);
    const last = stage.temporal.client.workflow.getHandle(handle.workflowId);
    expect(await last.result()).toMatchObject({ step: 8 });
    const asked = stage.requests.filter((request) => request.run === run.outline.run && !request.holding);
    const executions = new Set(asked.map(({ asker }) => asker?.execution));
    expect(executions.size).toBeGreaterThan(1);
    for (const { besides } of asked.slice(2)) expect(besides).toEqual([wrong]);
  });

  it('lets no run wait for ever because of a late request of the run’s earlier execution', async () => {
    const leaving = await stage.node(uniqueName('a'));
    const run = scriptRun(
      outlineOf(uniqueName('late'), {
        phases: [{ name: 'grpo', kind: 'grpo', steps: 8 }],
        ...{ eval_interval: 0, ckpt_interval: 0 },
      }),
    );
    const held = gate();
    const retold = (): LeaseRequest[] => stage.requests.filter(({ holding }) => holding);
    run.before = (call) => (call.startsWith('collect') && retold().length > 1 ? held.wait() : undefined);
    const handle = await stage.run(run);
    await held.reached;
    await leaving.drain();
    const { queue } = await stage.until(({ queue: waiters }) => waiters.length === 1);
    // This imitates an orchestrator that was cut off and repeats its request after the next execution has asked.
    await stage.pool.signal(requestSignal, retold()[0]!);
    await stage.until((view) => view.queue.some(({ lease }) => lease !== queue[0]?.lease));
    await stage.node(uniqueName('b'));
    held.release();
    const last = stage.temporal.client.workflow.getHandle(handle.workflowId);
    expect(await last.result()).toMatchObject({ step: 8 });
  });
});
