// A process is killed at a named moment, and the run must soon commit its next step, whichever task the process had. The worst moment is
// after the server has sent a task and before the worker has noted it: nobody can return such a task, so only a time-out brings it again.
// In this test a poller that takes a task and never answers stands for such a worker.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster, type RunHandle } from '../../support/cluster.js';
import { smallRun } from '../../support/small-run.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict, verdictOf } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { lastCommittedStep } from '../../../src/store/runs/run-records.js';

/**
 * Limit from the kill to the next committed step: a heartbeat time-out of 10 s, the start of a process and the rest of the step, on a busy
 * machine. Without a heartbeat time-out it would be the activity's own time-out of minutes.
 */
const movesAgainWithinMs = 40_000;

describe('a run after the kill of one of its processes', { timeout: 240_000 }, () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await Cluster.start();
    spec = await smallRun(join(cluster.folder, 'data'));
    await cluster.ended(await cluster.run(spec.named('undisturbed')));
    undisturbed = await verdictOf(cluster.store, 'undisturbed');
  }, 240_000);
  afterAll(() => cluster?.stop());

  const only = (workers: readonly WorkerProcess[]) => workers[0] as WorkerProcess;
  const orchestrator = () => only(cluster.orchestrators);
  const node = () => only(cluster.nodes);

  /** Starts a run and holds `worker` at `point` of the second step. */
  async function heldAt(worker: WorkerProcess, point: string, name: string): Promise<RunHandle> {
    worker.hold(point);
    const run = await cluster.run(spec.named(name));
    await cluster.firstAt(point, [worker]);
    return run;
  }

  /** Kills `worker`, runs `meanwhile`, starts the worker again, and checks the time until the next step is committed. */
  async function movesAgain(
    name: string,
    worker: WorkerProcess,
    meanwhile: () => Promise<void> | void,
  ): Promise<void> {
    const before = await lastCommittedStep(cluster.store, name);
    const killedAt = performance.now();
    await worker.kill();
    await meanwhile();
    worker.start();
    await until(async () => (await lastCommittedStep(cluster.store, name)) > before, `${name} to move again`);
    const ms = performance.now() - killedAt;
    console.log(`${name}: moves again after ${(ms / 1000).toFixed(1)} s`);
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

  for (const { point, of } of [
    { point: 'plan-built.step-000002.plan', of: orchestrator },
    { point: 'plan-written.step-000002.plan', of: orchestrator },
    { point: 'episode-written.step-000002.collect', of: node },
    { point: 'batch-built.step-000002.update', of: node },
    { point: 'update-computed.step-000002.update', of: node },
  ]) {
    const name = point.split('.')[0] as string;
    it(`moves again soon after a kill at ${name}`, async () => {
      const run = await heldAt(of(), point, name);
      await movesAgain(name, of(), () => of().letGo(point));
      await endsLikeUndisturbed(run, name);
    });
  }

  it('moves again soon if the dead orchestrator had received a plan task that it had not noted yet', async () => {
    const point = 'plan-built.step-000002.plan';
    const run = await heldAt(orchestrator(), point, 'lost-plan');
    await movesAgain('lost-plan', orchestrator(), async () => {
      orchestrator().letGo(point);
      await losesDispatch(orchestrator(), 'longhaul', 'step-000002/plan');
    });
    await endsLikeUndisturbed(run, 'lost-plan');
  });

  it('moves again soon if the dead orchestrator had received a workflow task', async () => {
    const point = 'episode-written.step-000002.collect';
    const run = await heldAt(node(), point, 'lost-task');
    await movesAgain('lost-task', orchestrator(), async () => {
      node().letGo(point);
      await losesWorkflowTask('train/lost-task');
    });
    await endsLikeUndisturbed(run, 'lost-task');
  });

  it('moves again soon if the dead node had received rollouts that it had not noted yet', async () => {
    const point = 'episode-written.step-000002.collect';
    const run = await heldAt(node(), point, 'lost-rollouts');
    await movesAgain('lost-rollouts', node(), async () => {
      node().letGo(point);
      await losesDispatch(node(), 'longhaul-node.shared.gpu', 'step-000002/collect');
    });
    await endsLikeUndisturbed(run, 'lost-rollouts');
  });
});
