// What a follower learns about runs from Temporal alone: which runs exist, which workflow start drives each, and how it ended.
import { beforeEach, describe, expect, it } from 'vitest';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { claimRun } from '../../../src/store/runs/owners.js';
import { claimName } from '../../../src/store/runs/run-records.js';
import { type DrivenRun, RunWatch } from '../../../src/workers/follower/run-watch.js';
import { memoryStore } from './memory-store.js';
import { until } from '../../support/until.js';
import { asked, blockAgain, type StandInEnd } from './stand-in-run.js';
import { resetStandIn, startStandIn, temporal, useStandInRuns } from './stand-in-runs.js';

const longAgo = new Date(0);

describe('the runs that Temporal knows', () => {
  useStandInRuns();
  let store: ObjectStore;
  beforeEach(() => {
    store = memoryStore();
  });

  /** Claims the run, as the first activity of a workflow does. */
  async function claim(name: string, firstExecutionRunId: string): Promise<string> {
    const run = await claimName(store, name);
    const where = { address: temporal.address, clusterId: 'test', namespace: 'default' };
    const claimant = { ...where, workflowId: `train/${name}`, firstExecutionRunId };
    await claimRun(store, run, claimant, () => Promise.resolve('closed'));
    return run;
  }

  /** Waits until a look shows the run: Temporal's visibility is a little late. */
  const seen = (watch: RunWatch, is: (run: DrivenRun) => boolean): Promise<DrivenRun> =>
    until(async () => (await watch.look(longAgo)).find(is), 'the run to be seen');

  it('are the claimed runs, each with its newest workflow start', async () => {
    const watch = new RunWatch(temporal.client, store);
    const first = await startStandIn('claimed', 'waits');
    await until(
      async () => (await temporal.client.workflow.count('WorkflowType = "trainingRun"')).count > 0,
      'it to be listed',
    );
    expect(await watch.look(longAgo)).toEqual([]);
    const run = await claim('claimed', first.firstExecutionRunId);
    const open = await seen(watch, (one) => one.run === run);
    expect(open).toMatchObject({
      ...{ workflowId: 'train/claimed', firstRunId: first.firstExecutionRunId },
      standing: { over: false, ending: null, blocked: null },
    });
    await first.terminate('a test');
    const ended = await seen(watch, (one) => one.standing.over);
    expect(ended.standing.ending).toMatchObject({
      ...{ firstRunId: first.firstExecutionRunId, how: 'cancelled', reason: 'a test' },
    });
    const second = await startStandIn('claimed', 'waits');
    await claim('claimed', second.firstExecutionRunId);
    const again = await seen(watch, (one) => !one.standing.over);
    expect(again).toMatchObject({ run, firstRunId: second.firstExecutionRunId });
    // The standing of the first start is over, although a second start has the same workflow id.
    expect(await watch.standing({ ...ended })).toMatchObject({ over: true, ending: null });
    await second.terminate('a test');
  });

  it.each<[StandInEnd, object]>([
    ['completes', { how: 'completed', reason: null }],
    ['stops', { how: 'completed', reason: '1 of 1 USD' }],
    ['fails', { how: 'failed', reason: 'the data is gone' }],
  ])('show how a run ended if its workflow %s', async (end, ending) => {
    const handle = await startStandIn(end, end);
    await handle.result().catch(() => undefined);
    const run = await claim(end, handle.firstExecutionRunId);
    const watch = new RunWatch(temporal.client, store);
    const over = await seen(watch, (one) => one.run === run && one.standing.over);
    expect(over.standing).toMatchObject({ over: true, phase: 'running', ending });
    expect(await new RunWatch(temporal.client, store).standing(over)).toEqual(over.standing);
  });

  it('keep their start when the workflow continues as new and when it is reset', async () => {
    const handle = await startStandIn('anew', 'goes on');
    const run = await claim('anew', handle.firstExecutionRunId);
    const watch = new RunWatch(temporal.client, store);
    const runIdOf = async (): Promise<string> =>
      (await temporal.client.workflow.getHandle('train/anew').describe()).runId;
    await until(async () => (await runIdOf()) !== handle.firstExecutionRunId, 'it to begin again');
    const open = await seen(watch, (one) => one.run === run && !one.standing.over);
    expect(open.firstRunId).toBe(handle.firstExecutionRunId);
    await resetStandIn('anew');
    const reset = await seen(watch, (one) => one.run === run && !one.standing.over);
    expect(reset.firstRunId).toBe(handle.firstExecutionRunId);
    await temporal.client.workflow.getHandle('train/anew').terminate('a test');
  });

  it('show why a run is blocked, and a new reason at the next look; the workflow is queried only after new events', async () => {
    const handle = await startStandIn('blocked', 'is blocked');
    const run = await claim('blocked', handle.firstExecutionRunId);
    const watch = new RunWatch(temporal.client, store);
    const first = await seen(watch, (one) => one.run === run && one.standing.blocked !== null);
    expect(first.standing).toMatchObject({ phase: 'blocked', blocked: { reason: 'the first reason' } });
    const queries = await handle.query(asked);
    await watch.look(longAgo);
    await watch.look(longAgo);
    expect(await handle.query(asked)).toBe(queries);
    await handle.signal(blockAgain, 'another reason');
    const again = await seen(watch, (one) => one.standing.blocked?.reason === 'another reason');
    expect(again).toMatchObject({ run, standing: { phase: 'blocked' } });
    await handle.terminate('a test');
  });

  it('are over, without an ending, if Temporal has forgotten them', async () => {
    const forgotten = { workflowId: 'train/forgotten', firstRunId: 'none' };
    const standing = await new RunWatch(temporal.client, store).standing(forgotten);
    expect(standing).toEqual({ over: true, ending: null, phase: null, blocked: null });
  });
});
