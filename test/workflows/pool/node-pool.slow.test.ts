// Runs with leases of the real pool: which run waits for which, and what happens when a node or a run is gone.
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import {
  grantedSignal,
  nodeDownSignal,
  nodeUpSignal,
  refusedSignal,
  requestSignal,
  resumeUpdate,
  revokedSignal,
  waitingSignal,
} from '../../../src/workflows/messages.js';
import { detectedWithinMs, heldScript, type PoolStage, shortScript, usePool } from './pool-stage.js';
import { gate, uniqueName, until } from '../scripted-run.js';

describe('the pool of nodes', () => {
  let stage: PoolStage;
  usePool((opened) => (stage = opened));

  it('gives a node to one run after another, each of which asks once, and says why a run waits', async () => {
    const local = uniqueName('node');
    await stage.node(local);
    const [first, second] = [heldScript('first'), shortScript('second')];
    const holder = await stage.run(first);
    await first.held.reached;
    const waiter = await stage.run(second);
    const status = await until(waiter, ({ phase }) => phase === 'placing');
    expect(status.waitsFor).toBe(`node ${local} is held by train/${first.outline.name}`);
    const { leases, queue } = await stage.view();
    expect(leases).toMatchObject([{ run: first.outline.run, node: local, project: 'tests' }]);
    expect(queue).toMatchObject([{ run: second.outline.run, why: status.waitsFor }]);
    first.held.release();
    expect(await holder.result()).toMatchObject({ step: 3 });
    expect(await waiter.result()).toMatchObject({ step: 3 });
    expect(stage.requests.map(({ run }) => run)).toEqual([first.outline.run, second.outline.run]);
    await stage.until(({ leases: left }) => left.length === 0);
  });

  it('starts with a request if no node has reported yet', async () => {
    const early = shortScript('early');
    const run = await stage.run(early);
    const { waitsFor } = await until(run, ({ phase }) => phase === 'placing');
    expect(waitsFor).toBe('no node is alive');
    await stage.node(uniqueName('node'));
    expect(await run.result()).toMatchObject({ step: 3 });
  });

  it.each(['terminated', 'cancelled'] as const)('takes a node from a run that is %s (R30)', async (how) => {
    await stage.node(uniqueName('node'));
    const [first, second] = [heldScript('gone'), shortScript('second')];
    const gone = await stage.run(first);
    await first.held.reached;
    await (how === 'terminated' ? gone.terminate() : gone.cancel());
    const waiter = await stage.run(second);
    expect(await waiter.result()).toMatchObject({ step: 3 });
  });

  it('notices a dead node within two reports: its run moves on, and does not wait for the dead node', async () => {
    const dead = gate();
    const [first, second] = [uniqueName('a'), uniqueName('b')];
    const killed = await stage.node(first, {
      called: (call) => (call.includes('collectRollouts 2') ? dead.wait() : undefined),
    });
    const moved = shortScript('moved');
    const run = await stage.run(moved);
    await dead.reached;
    await stage.node(second);
    await killed.vanish();
    const diedAt = Date.now();
    await stage.until(({ leases }) => !leases.some(({ node }) => node === first), detectedWithinMs);
    console.log(`a dead node was detected after ${Date.now() - diedAt} ms`);
    await until(run, ({ node }) => node === second);
    expect(await run.result()).toMatchObject({ step: 3 });
    dead.release();
  });

  it('moves a run away from a draining node, and gives that node no new lease', async () => {
    const [first, second] = [uniqueName('a'), uniqueName('b')];
    const leaving = await stage.node(first);
    const moved = heldScript('drained');
    const run = await stage.run(moved);
    await moved.held.reached;
    await stage.node(second);
    await leaving.drain();
    const { nodes } = await stage.until(({ leases }) => leases.some(({ node }) => node === second));
    expect(nodes.map(({ id, state }) => [id, state])).toEqual([
      [first, 'draining'],
      [second, 'up'],
    ]);
    // The run moves at once, although the work left behind still occupies its activity's id.
    await until(run, ({ node }) => node === second, 5_000);
    moved.held.release();
    expect(await run.result()).toMatchObject({ step: 3 });
  });

  it('blocks a run that fits no living node, names both numerics, and continues it when a fitting node comes (R18)', async () => {
    stage.numerics = { backend: 'cpu', version: 1 };
    await stage.node(uniqueName('newer'), { numerics: { backend: 'cpu', version: 2 } });
    const unfit = shortScript('unfit');
    const run = await stage.run(unfit);
    const { blocked } = await until(run, ({ phase }) => phase === 'blocked');
    expect(blocked?.reason).toMatch(/no living node has numerics cpu\/1, .* computes with cpu\/2/);
    expect(blocked?.remedy).toContain(`longhaul resume ${unfit.outline.run}`);
    await run.executeUpdate(resumeUpdate);
    await until(run, ({ phase }) => phase === 'blocked');
    await stage.node(uniqueName('fits'), { numerics: { backend: 'cpu', version: 1 } });
    expect(await run.result()).toMatchObject({ step: 3 });
  });

  it('gives another node to a run whose node disagrees with a record, or refuses at once if there is no other node (R19)', async () => {
    const [first, second] = [uniqueName('a'), uniqueName('b')];
    const disagree = (call: string): void => {
      if (call.includes('collectRollouts 2'))
        throw ApplicationFailure.nonRetryable('step 1 was recomputed as another state', 'Diverged');
    };
    await stage.node(first, { called: disagree });
    const alone = shortScript('alone');
    const blocked = await stage.run(alone);
    expect((await until(blocked, ({ phase }) => phase === 'blocked')).blocked?.reason).toContain(
      'another state',
    );
    await blocked.terminate();
    const moves = heldScript('moves');
    const run = await stage.run(moves);
    await until(run, ({ phase, step }) => phase === 'blocked' && step === 1);
    await stage.node(second);
    await run.executeUpdate(resumeUpdate);
    await moves.held.reached;
    const { leases } = await stage.until(({ leases: held }) => held.length === 1);
    expect(leases).toMatchObject([{ run: moves.outline.run, node: second }]);
    moves.held.release();
    expect(await run.result()).toMatchObject({ step: 3 });
  });

  it.each(['had asked', 'had noticed'])(
    'receives a second request from a run whose node was granted and revoked before the run %s',
    async (when) => {
      const run = shortScript('blinks');
      const again = async (): Promise<void> => {
        const [{ lease, workflowId } = stage.requests[0]!] = stage.requests;
        const workflow = stage.temporal.client.workflow.getHandle(workflowId);
        await workflow.signal(grantedSignal, { lease, node: 'gone' });
        await workflow.signal(revokedSignal, { lease, node: 'gone', reason: 'draining' });
      };
      if (when === 'had asked') stage.before = () => (stage.requests.length === 1 ? again() : undefined);
      const handle = await stage.run(run);
      await stage.until(({ queue }) => queue.length > 0);
      // Both happen in one workflow task.
      if (when === 'had noticed') await stage.outage(100, again);
      await stage.node(uniqueName('node'));
      expect(await handle.result()).toMatchObject({ step: 3 });
      expect(new Set(stage.requests.map(({ lease }) => lease)).size).toBe(2);
    },
  );

  it('ignores messages that it cannot read', async () => {
    await stage.node(uniqueName('node'));
    await stage.pool.signal('request');
    await stage.pool.signal(nodeDownSignal, null as never);
    await stage.pool.signal(nodeUpSignal, 7 as never);
    const halfReadable = {
      ...{ lease: 'x/1', run: 'x', project: 'tests', priority: 0, numerics: null },
      ...{ workflowId: 'train/x', firstExecutionRunId: 'x' },
    };
    await stage.pool.signal(requestSignal, halfReadable as never);
    expect((await stage.view()).queue).toEqual([]);
    const whole = heldScript('whole');
    const run = await stage.run(whole);
    await whole.held.reached;
    for (const signal of [grantedSignal, revokedSignal, waitingSignal, refusedSignal])
      await run.signal(signal, undefined as never);
    whole.held.release();
    expect(await run.result()).toMatchObject({ step: 3 });
  });
});
