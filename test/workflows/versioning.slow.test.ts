// Several builds of the orchestrator at once, as worker deployments: an execution stays on the build that began it, and the next execution
// begins on the build that is current then.
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import type { Worker } from '@temporalio/worker';
import { testWorker } from '../support/test-worker.js';
import { describe, expect, it } from 'vitest';
import { versioned } from '../../src/workers/orchestrator/orchestrator-worker.js';
import {
  engineQueue,
  type NodeReport,
  nodeUpSignal,
  poolQuery,
  setHyperparametersUpdate,
  transferQueue,
} from '../../src/workflows/messages.js';
import { findTemporal } from '../support/find-tools.js';
import type { ConnectedTemporal } from '../support/servers/temporal-server.js';
import { until as untilTrue } from '../support/until.js';
import {
  gate,
  grpoPhases,
  type ScriptedRun,
  startRun,
  uniqueName,
  uniqueScript,
  useTemporal,
  workflowBundle,
} from './scripted-run.js';

const run = promisify(execFile);

describe('a run of versioned workers', () => {
  const temporal = useTemporal();

  it('stays on its build until the next step boundary, then continues on the current one', async () => {
    await withBuilds(temporal, grpo(6), async ({ queue, script, ran, makeCurrent, start }) => {
      await start('A');
      await makeCurrent('A');
      const held = gate();
      script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
      const training = await startRun(temporal, queue, script.outline.name);
      await held.reached;
      await start('B');
      await makeCurrent('B');
      // During the step, the old build decides everything, including changes that arrive meanwhile.
      await training.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.05 }] });
      held.release();
      expect(await training.result()).toMatchObject({ ended: 'completed', step: 6 });
      expect(ran).toEqual([
        ...['A open', 'A plan 1', 'A plan 2', 'A plan 3', 'A control setHyperparameters'],
        ...['B open', 'B plan 4', 'B plan 5', 'B plan 6', 'B report'],
      ]);
      expect(updates(script)).toEqual([1, 2, 3, 4, 5, 6].map((step) => `update ${step}`));
      expect(script.committed.get(4)).toMatchObject({ control: 1, lr: 0.05 });
    });
  });

  it('returns to the former build in the same way when that build is made current again', async () => {
    await withBuilds(temporal, grpo(6), async ({ queue, script, ran, makeCurrent, start }) => {
      await Promise.all([start('A'), start('B')]);
      await makeCurrent('B');
      const held = gate();
      script.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
      const training = await startRun(temporal, queue, script.outline.name);
      await held.reached;
      await makeCurrent('A');
      held.release();
      expect(await training.result()).toMatchObject({ ended: 'completed', step: 6 });
      expect(ran.filter((call) => call.includes('plan'))).toEqual([
        'B plan 1',
        'B plan 2',
        'A plan 3',
        'A plan 4',
        'A plan 5',
        'A plan 6',
      ]);
      expect(updates(script)).toHaveLength(6);
    });
  });

  it('stays on the build to which a person pinned it, and does not continue as new for another', async () => {
    await withBuilds(temporal, grpo(6), async ({ queue, script, ran, makeCurrent, start }) => {
      await Promise.all([start('A'), start('B')]);
      await makeCurrent('A');
      const held = gate();
      script.before = (call) => (call === 'collect 1' ? held.wait() : undefined);
      const training = await temporal.client.workflow.start('trainingRun', {
        ...{ taskQueue: queue, workflowId: `train/${script.outline.name}`, args: [{}] },
        // Pins a workflow to a build, like `temporal workflow update-options`.
        versioningOverride: { pinnedTo: { deploymentName: `longhaul-${queue}`, buildId: 'A' } },
      });
      await held.reached;
      await makeCurrent('B');
      held.release();
      await training.result();
      expect(ran.filter((call) => call.startsWith('B'))).toEqual([]);
      expect(ran.filter((call) => call === 'A open')).toHaveLength(1);
    });
  });

  it('is rolled out, watched and pinned by the commands of the guide', async () => {
    await withBuilds(temporal, grpo(4), async ({ queue, script, ran, deployment, start }) => {
      const temporalCli = async (...args: string[]): Promise<string> => {
        const { stdout } = await run(findTemporal(), [...args, '--address', temporal.address]);
        return stdout;
      };
      const makeCurrent = (build: string): Promise<string> =>
        temporalCli(
          ...['worker', 'deployment', 'set-current-version', '--yes'],
          ...['--deployment-name', deployment, '--build-id', build],
        );
      await start('A');
      await makeCurrent('A');
      const held = gate();
      script.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
      const { name } = script.outline;
      const training = await startRun(temporal, queue, name);
      await held.reached;
      await start('B');
      expect(await temporalCli('worker', 'deployment', 'describe', '--name', deployment)).toMatch(/\bB\b/);
      await makeCurrent('B');
      const hold = ['workflow', 'update-options', '-w', `train/${name}`, '--versioning-override-behavior'];
      await temporalCli(
        ...[...hold, 'pinned', '--versioning-override-deployment-name', deployment],
        ...['--versioning-override-build-id', 'A'],
      );
      const open = `TemporalWorkerDeploymentVersion = "${deployment}:A" AND ExecutionStatus = "Running"`;
      await untilTrue(
        async () => (await temporalCli('workflow', 'list', '-q', open)).includes(`train/${name}`),
        'the list of what runs on build A',
      );
      await temporalCli(...hold, 'unspecified');
      held.release();
      expect(await training.result()).toMatchObject({ ended: 'completed', step: 4 });
      expect(ran.at(-1)).toBe('B report');
      const version = ['--deployment-name', deployment, '--build-id', 'A'];
      expect(await temporalCli('worker', 'deployment', 'describe-version', ...version)).toMatch(
        /DrainageStatus +drain/i,
      );
    });
  });

  it('finds its nodes after the pool has moved to the current build too', async () => {
    await withBuilds(temporal, grpo(1), async ({ queue, makeCurrent, start }) => {
      await start('A');
      await makeCurrent('A');
      const workflowId = uniqueName('nodes');
      const report = (id: string): NodeReport => ({
        ...{ id, instance: id, host: 'here', gpu: null, memory_bytes: 1, places: 1 },
      });
      const pool = temporal.client.workflow.getHandle(workflowId);
      await temporal.client.workflow.signalWithStart('nodePool', {
        ...{ workflowId, taskQueue: queue, args: [], signal: nodeUpSignal, signalArgs: [report('first')] },
      });
      expect((await pool.query(poolQuery)).nodes).toHaveLength(1);
      await start('B');
      await makeCurrent('B');
      await pool.signal(nodeUpSignal, report('second'));
      await untilTrue(async () => {
        const { raw } = await pool.describe();
        return raw.workflowExecutionInfo?.versioningInfo?.deploymentVersion?.buildId === 'B';
      }, 'the pool to be on build B');
      expect((await pool.query(poolQuery)).nodes.map(({ id }) => id)).toEqual(['first', 'second']);
      await pool.terminate();
    });
  });
});

/** temporal.api.enums.v1.TaskQueueType */
const workflowTasks = 1;

function grpo(steps: number): ScriptedRun {
  const phases = grpoPhases(steps);
  return uniqueScript('versioned', { phases, ckpt_interval: 100, eval_interval: 100 });
}

const updates = (script: ScriptedRun): string[] => script.calls.filter((call) => call.startsWith('update '));

interface Builds {
  queue: string;
  deployment: string;
  script: ScriptedRun;
  /** What the orchestrators' activities did, each with its build. */
  ran: string[];
  start(build: string): Promise<void>;
  makeCurrent(build: string): Promise<void>;
}

async function withBuilds(
  temporal: ConnectedTemporal,
  script: ScriptedRun,
  use: (builds: Builds) => Promise<void>,
): Promise<void> {
  const queue = `longhaul-${randomUUID()}`;
  const deployment = `longhaul-${queue}`;
  const ran: string[] = [];
  const workers: Worker[] = [];
  const runs: Promise<void>[] = [];
  const serve = (worker: Worker): void => {
    workers.push(worker);
    runs.push(worker.run());
  };
  const { connection } = temporal;
  const { workflowService } = temporal.client;
  const version = (buildId: string) => ({ deploymentName: deployment, buildId });
  try {
    for (const taskQueue of [engineQueue(script.node), transferQueue(script.node)])
      serve(await testWorker({ connection, taskQueue, activities: script.activities }));
    await use({
      ...{ queue, deployment, script, ran },
      start: async (build) => {
        const activities = activitiesOf(script, build, ran);
        serve(
          await testWorker({
            ...{ connection, taskQueue: queue, activities, workflowBundle: await workflowBundle() },
            ...versioned({ name: deployment, buildId: build }),
          }),
        );
        await untilTrue(
          () =>
            workflowService
              .describeWorkerDeploymentVersion({ namespace: 'default', deploymentVersion: version(build) })
              .then(
                ({ workerDeploymentVersionInfo: info }) =>
                  (info?.taskQueueInfos ?? []).filter(({ name }) => name === queue).length === 2,
                () => false,
              ),
          `build ${build} to be known`,
        );
      },
      makeCurrent: async (build) => {
        await workflowService.setWorkerDeploymentCurrentVersion({
          ...{ namespace: 'default', deploymentName: deployment, buildId: build },
          ignoreMissingTaskQueues: true,
        });
        // The queue notices this a moment later.
        await untilTrue(async () => {
          const { versioningInfo } = await workflowService.describeTaskQueue({
            ...{ namespace: 'default', taskQueue: { name: queue }, taskQueueType: workflowTasks },
          });
          return versioningInfo?.currentDeploymentVersion?.buildId === build;
        }, `build ${build} to be current`);
      },
    });
  } finally {
    for (const worker of workers) worker.shutdown();
    await Promise.all(runs);
  }
}

/** The orchestrator's activities; each call is noted, with the script's name for it. */
function activitiesOf(script: ScriptedRun, build: string, ran: string[]): object {
  const names = ['openRun', 'planStep', 'recordControl', 'writeReport'] as const;
  const noting = names.map((name) => {
    const activity = script.activities[name] as (input: never) => Promise<unknown>;
    return [
      name,
      async (input: never) => {
        const before = script.calls.length;
        const answer = await activity(input);
        ran.push(`${build} ${script.calls[before] ?? name}`);
        return answer;
      },
    ];
  });
  return { ...script.activities, ...(Object.fromEntries(noting) as object) };
}
