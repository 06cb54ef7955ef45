// A process is killed at a named moment, and the run must soon commit its next step, whichever task the process had. The worst moment is
// after the server has sent a task and before the worker has noted it: nobody can return such a task, so only a time-out brings it again.
// In this test a poller that takes a task and never answers stands for such a worker.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster, RunHandle } from '../../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../../support/cluster/shared-cluster.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { lastCommittedStep } from '../../../src/store/runs/run-records.js';

/**
 * Limit from the kill to the next committed step: a heartbeat time-out of 10 s, the start of a process and the rest of the step, on a busy
 * machine. Without a heartbeat time-out it would be the activity's own time-out of minutes.
 */
const movesAgainWithinMs = 40_000;

describe('a run after the kill of one of its processes', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await borrowCluster();
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(() => returnCluster(cluster));

  const only = (workers: readonly WorkerProcess[]) => workers[0] as WorkerProcess;
  const orchestrator = () => only(cluster.orchestrators);
  const node = () => only(cluster.nodes);

  type Moment = [worker: () => WorkerProcess, point: string];

  /** Starts a run that is held at each of the moments, in this order. */
  async function started(name: string, moments: readonly Moment[]): Promise<RunHandle> {
    for (const [worker, point] of moments) worker().hold(point);
    return cluster.run(spec.named(name));
  }

  /** Kills `dying` when `worker` is held at `point`, runs `meanwhile`, starts it again, and checks the time until the step is committed. */
  async function movesAgain(
    name: string,
    [worker, point]: Moment,
    dying = worker,
    meanwhile: () => Promise<void> = () => Promise.resolve(),
  ): Promise<void> {
    await cluster.firstAt(point, [worker()]);
    const before = await lastCommittedStep(cluster.store, name);
    const killedAt = performance.now();
    await dying().kill();
    worker().letGo(point);
    await meanwhile();
    dying().start();
    await until(async () => (await lastCommittedStep(cluster.store, name)) > before, `${name} to move again`);
    const ms = performance.now() - killedAt;
    console.log(`${name}, ${point}: moves again after ${(ms / 1000).toFixed(1)} s`);
    expect(ms).toBeLessThan(movesAgainWithinMs);
  }

  async function endsLikeUndisturbed(run: RunHandle, name: string): Promise<void> {
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, name, undisturbed);
  }

  /** Gives the activity that `worker` ran to a poller that never answers. */
  async function losesDispatch(worker: WorkerProcess, queue: string, activityId: string): Promise<void> {
    const { client } = cluster.temporal;
    await worker.failOpenAttempts(client.activity);
    const task = await client.withDeadline(Date.now() + 10_000, () =>
      client.workflowService.pollActivityTaskQueue({
        namespace: 'default',
        taskQueue: { name: queue },
        identity: 'a worker that dies',
      }),
    );
    expect(task).toMatchObject({ activityId, attempt: 2 });
  }

  /** Gives the next workflow task of `workflowId` to a poller that never answers, once any worker may take the task. */
  async function losesWorkflowTask(workflowId: string): Promise<void> {
    const { client } = cluster.temporal;
    await until(async () => {
      const { workflowExecution } = await client.withDeadline(Date.now() + 20_000, () =>
        client.workflowService.pollWorkflowTaskQueue({
          namespace: 'default',
          taskQueue: { name: 'longhaul' },
          identity: 'a worker that dies',
        }),
      );
      return workflowExecution?.workflowId === workflowId;
    }, 'the workflow task to be handed out');
  }

  it.each<{ name: string; moments: Moment[] }>([
    {
      name: 'killed-at-the-end',
      moments: [
        [orchestrator, 'plan-built.step-000002.plan'],
        [node, 'batch-built.step-000003.update'],
        [node, 'update-computed.step-000004.update'],
      ],
    },
    {
      name: 'killed-at-the-beginning',
      moments: [
        [node, 'episode-written.step-000002.collect'],
        [orchestrator, 'plan-written.step-000003.plan'],
      ],
    },
  ])('moves again soon after each kill ($name)', async ({ name, moments }) => {
    const run = await started(name, moments);
    for (const moment of moments) await movesAgain(name, moment);
    await endsLikeUndisturbed(run, name);
  });

  it('moves again soon if the dead process had received a plan, rollouts or a workflow task that it had not noted yet', async () => {
    const plan: Moment = [orchestrator, 'plan-built.step-000002.plan'];
    const rollouts: Moment = [node, 'episode-written.step-000003.collect'];
    const amidRollouts: Moment = [node, 'episode-written.step-000004.collect'];
    const run = await started('lost-tasks', [plan, rollouts, amidRollouts]);
    await movesAgain('lost-tasks', plan, orchestrator, () =>
      losesDispatch(orchestrator(), 'longhaul', 'step-000002/plan'),
    );
    await movesAgain('lost-tasks', rollouts, node, () =>
      losesDispatch(node(), 'longhaul-node.shared.gpu', 'step-000003/collect'),
    );
    await movesAgain('lost-tasks', amidRollouts, orchestrator, () => losesWorkflowTask('train/lost-tasks'));
    await endsLikeUndisturbed(run, 'lost-tasks');
  });
});
