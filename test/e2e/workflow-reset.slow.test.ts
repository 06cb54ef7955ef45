// `temporal workflow reset` takes a workflow back in its history, but not its records. The new execution adopts the records (R4), and
// earlier Updates still hold (R21).
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster, type RunHandle } from '../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../support/cluster/shared-cluster.js';
import { smallRun } from '../support/small-run.js';
import { type CommandAnswer, temporalCli } from '../support/servers/temporal-cli.js';
import { undisturbedVerdict } from '../support/cluster/undisturbed.js';
import { until } from '../support/until.js';
import { expectEqual, type Verdict, verdictOf } from '../support/verdict.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { controlFolder } from '../../src/store/record-keys.js';
import { readSequence } from '../../src/store/records/records.js';
import { readPlan } from '../../src/store/runs/run-records.js';
import { statusQuery } from '../../src/workflows/messages.js';

/** One moment of each kind, in the order in which a run reaches them. */
const moments = [
  'plan-built.step-000002.plan',
  'episode-written.step-000002.collect',
  'checkpoint-data-written.step-000002.upload',
  'update-computed.step-000003.update',
  'update-recorded.step-000004.update',
];
const inMidStep = 'episode-written.step-000003.collect';

describe('a run whose workflow is reset', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;
  beforeAll(async () => {
    cluster = await borrowCluster();
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(() => returnCluster(cluster));

  const workerAt = (point: string) => {
    const [node, orchestrator] = [cluster.nodes[0], cluster.orchestrators[0]];
    return (point.startsWith('plan') ? orchestrator : node) as NonNullable<typeof node>;
  };
  const reached = (point: string): Promise<unknown> =>
    until(() => workerAt(point).hasReached(point), `${point} to be reached`);
  const reset = async (name: string, ...flags: string[]): Promise<void> => {
    const cli = temporalCli(cluster.temporal.address);
    const to = ['workflow', 'reset', '-w', `train/${name}`, '--reason', 'a test', ...flags];
    expect(await cli(...to)).toMatchObject({ code: 0, errors: '' });
  };
  const update = (name: string, verb: string, ...input: string[]): Promise<CommandAnswer> =>
    temporalCli(cluster.temporal.address)(
      ...['workflow', 'update', 'execute', '-w', `train/${name}`, '--name', verb, ...input],
    );
  /** Status from the run's newest execution. */
  const status = (run: RunHandle) => cluster.followed(run).query(statusQuery);
  const paused = (run: RunHandle) =>
    until(async () => {
      const found = await status(run);
      return found.phase === 'paused' && found;
    }, 'the run to be paused');

  it.each([
    ['its beginning', 'from-beginning', ['--type', 'FirstWorkflowTask']],
    [
      'its beginning, without a grant of a node',
      'from-nothing',
      ['--type', 'FirstWorkflowTask', '--reapply-exclude', 'All'],
    ],
    ['its last workflow task', 'from-last', ['--type', 'LastWorkflowTask']],
  ])('to %s, at every kind of moment, ends in the same state', async (_, name, flags) => {
    for (const point of moments) workerAt(point).hold(point);
    const run = await cluster.run(spec.named(name));
    for (const point of moments) {
      await reached(point);
      await reset(name, ...flags);
      workerAt(point).letGo(point);
    }
    expect(await cluster.ended(cluster.followed(run))).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, name, undisturbed);
  });

  /** Sets lr and pauses the run in the middle of step 3, then runs `then`. */
  async function told(name: string, then: (run: RunHandle) => Promise<void>): Promise<void> {
    workerAt(inMidStep).hold(inMidStep);
    const run = await cluster.run(spec.named(name));
    await reached(inMidStep);
    expect((await update(name, 'setHyperparameters', '--input', '{"lr": 0.004}')).code).toBe(0);
    expect((await update(name, 'pause')).code).toBe(0);
    await then(run);
    workerAt(inMidStep).letGo(inMidStep);
    expect(await paused(run)).toMatchObject({ control: { n: 2, paused: true, lr: 0.004 } });
    expect((await update(name, 'resume')).code).toBe(0);
    expect(await cluster.ended(cluster.followed(run))).toMatchObject({ ended: 'completed', step: 4 });
    const control = await readSequence(cluster.store, controlFolder(name), 'control');
    expect(control.map(({ change }) => change.kind)).toEqual(['setHyperparameters', 'pause', 'resume']);
    const plan = await readPlan(cluster.store, { run: name, step: 4 });
    expect(plan).toMatchObject({ control: 3, optimizer: { learning_rates: [0.004] } });
  }

  it('to a moment before a change and a pause keeps both, even if the server forgets the Updates', async () => {
    await told('told', () => Promise.resolve());
    const once = await verdictOf(cluster.store, 'told');
    // The last completed workflow task before step 2 was planned, long before the Updates.
    const eventBefore = async (run: RunHandle): Promise<string> => {
      const { events } = await run.fetchHistory();
      const planned = (events ?? []).findIndex(
        ({ activityTaskScheduledEventAttributes: scheduled }) => scheduled?.activityId === 'step-000002/plan',
      );
      const completed = (events ?? [])
        .slice(0, planned)
        .findLast((event) => event.workflowTaskCompletedEventAttributes);
      return String(completed?.eventId);
    };
    await told('told-again', async (run) => {
      await reset('told-again', '--event-id', await eventBefore(run));
      // Reset again, now while the run is paused: it must be paused again.
      workerAt(inMidStep).letGo(inMidStep);
      await paused(run);
      await reset('told-again', '--type', 'FirstWorkflowTask');
    });
    await told('forgotten', async (run) =>
      reset('forgotten', '--event-id', await eventBefore(run), '--reapply-exclude', 'All'),
    );
    for (const name of ['told-again', 'forgotten']) await expectEqual(cluster.store, name, once);
  });
});

describe('a run whose workflow is reset to an earlier execution of its chain', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start({
      temporal: { dynamicConfig: { 'limit.historyCount.suggestContinueAsNew': 20 } },
    });
  });
  afterAll(() => cluster?.stop());

  it('skips the committed steps, and ends in the same state', async () => {
    const spec = await smallRun(join(cluster.folder, 'data'));
    const undisturbed = await undisturbedVerdict(cluster, spec.named);
    const [node] = cluster.nodes;
    if (!node) throw new Error('there is no node');
    node.hold(inMidStep);
    const run = await cluster.run(spec.named('earlier'));
    await until(() => node.hasReached(inMidStep), 'the third step to be sampled');
    const now = await cluster.followed(run).describe();
    expect(now.runId).not.toBe(run.firstExecutionRunId);
    const cli = temporalCli(cluster.temporal.address);
    const first = ['--run-id', run.firstExecutionRunId, '--type', 'FirstWorkflowTask'];
    const answer = await cli('workflow', 'reset', '-w', 'train/earlier', '--reason', 'a test', ...first);
    expect(answer).toMatchObject({ code: 0, errors: '' });
    node.letGo(inMidStep);
    expect(await cluster.ended(cluster.followed(run))).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'earlier', undisturbed);
  });
});
