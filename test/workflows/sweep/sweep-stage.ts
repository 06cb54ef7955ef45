// Sweeps with real parts: Temporal, the pool, the native engine, the environment server, a run with checkpoints in a directory store.
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type WorkflowHandleWithFirstExecutionRunId } from '@temporalio/client';
import type { Worker, WorkflowBundleOption, WorkerOptions } from '@temporalio/worker';
import { testWorker } from '../../support/test-worker.js';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { comparisonOf } from '../../../src/activities/evaluation/compare-sweep.js';
import type { SweepNodeActivities } from '../../../src/activities/sweep-contracts.js';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import { saveState, uploadCheckpoint } from '../../../src/activities/step/save-state.js';
import { evalSweep } from '../../../src/workflows/sweep/eval-sweep.js';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import { guardActivities } from '../../../src/workers/attempt/activity-guard.js';
import { OpenActivities } from '../../../src/workers/attempt/open-activities.js';
import { isOver, requestLease } from '../../../src/workers/orchestrator/temporal-cluster.js';
import {
  defaultPoolId,
  engineQueue,
  nodeDownSignal,
  type NodeReport,
  nodeReportIntervalMs,
  nodeUpSignal,
  orchestratorQueue,
} from '../../../src/workflows/messages.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { readSweep } from '../../../src/store/evaluations/sweeps.js';
import type { nodePool } from '../../../src/workflows/pool/node-pool.js';
import { type Harness, run, startEnvironments, startHarness } from '../../activities/fixture.js';
import { hurriedBundle } from '../hurried-bundle.js';
import { reportEveryMs } from '../hurried/times.js';
import { workflowBundle } from '../scripted-run.js';
import {
  type ConnectedTemporal,
  startTemporal,
  type TestTemporal,
} from '../../support/servers/temporal-server.js';

export type SweepHandle = WorkflowHandleWithFirstExecutionRunId<typeof evalSweep>;

/** Trains all steps up to `last`, and makes checkpoints of `steps`. */
export async function trained(harness: Harness, last: number, steps: readonly number[]): Promise<void> {
  for (let step = 1; step <= last; step++) {
    await harness.advance(step);
    if (!steps.includes(step)) continue;
    const at = { run, owner: 1, step };
    await harness.attempt(`step-00000${step}/save`, () => saveState(harness.node, at));
    await harness.attempt(`step-00000${step}/upload`, () => uploadCheckpoint(harness.node, at));
  }
}

export class SweepStage {
  private readonly workers: { worker: Worker; running: Promise<void> }[] = [];
  private readonly leaving = new Map<string, () => Promise<void>>();
  private readonly silencing = new Map<string, () => Promise<void>>();

  private constructor(
    readonly temporal: ConnectedTemporal,
    readonly harness: Harness,
    private readonly reportEveryMs: number,
  ) {}

  static async open(
    temporal: ConnectedTemporal,
    harness: Harness,
    { isHurried = false } = {},
  ): Promise<SweepStage> {
    const reportEvery = isHurried ? reportEveryMs : nodeReportIntervalMs;
    const stage = new SweepStage(temporal, harness, reportEvery);
    const { client } = temporal;
    const bundle: WorkflowBundleOption = await (isHurried ? hurriedBundle() : workflowBundle());
    await stage.serve(orchestratorQueue, {
      workflowBundle: bundle,
      activities: {
        ...createOrchestratorActivities({
          ...harness.orchestrator,
          requestLease: (request) => requestLease(client, request),
          isOver: (other) => isOver(client, other),
        }),
      },
    });
    return stage;
  }

  /** Serves a node until `leaves` is called. `changed`: activities that replace the node's own. */
  async node(deps: NodeDeps, changed: Partial<SweepNodeActivities> = {}): Promise<void> {
    const { client } = this.temporal;
    const id = deps.node;
    const serving = await this.serve(engineQueue(id), {
      activities: { ...createNodeActivities(deps), ...changed },
    });
    const report: NodeReport = {
      ...{ id, instance: randomUUID(), host: 'box', gpu: null, memory_bytes: 1, places: 1 },
    };
    const say = (): Promise<unknown> =>
      client.workflow.signalWithStart<typeof nodePool, [NodeReport]>('nodePool', {
        workflowId: defaultPoolId,
        taskQueue: orchestratorQueue,
        args: [],
        signal: nodeUpSignal,
        signalArgs: [report],
      });
    await say();
    let said: Promise<unknown> = Promise.resolve();
    const timer = setInterval(() => void (said = Promise.allSettled([said, say()])), this.reportEveryMs);
    const silence = async (): Promise<void> => {
      clearInterval(timer);
      await said;
    };
    this.silencing.set(id, silence);
    this.leaving.set(id, async () => {
      await silence();
      const { instance } = report;
      await client.workflow.getHandle(defaultPoolId).signal(nodeDownSignal, { id, instance });
      serving.worker.shutdown();
      await serving.running;
    });
  }

  /** The pool receives no more reports of the node and declares it lost, but the node works on. */
  async fallsSilent(deps: NodeDeps): Promise<void> {
    await this.silencing.get(deps.node)?.();
  }

  async leaves(deps: NodeDeps): Promise<void> {
    await this.leaving.get(deps.node)?.();
    this.leaving.delete(deps.node);
  }

  start(name: string, spec: unknown): Promise<SweepHandle> {
    return this.temporal.client.workflow.start(evalSweep, {
      taskQueue: orchestratorQueue,
      workflowId: `eval/tests/${name}`,
      args: [spec],
    });
  }

  async close(): Promise<void> {
    await Promise.all([...this.leaving.values()].map((leave) => leave()));
    this.leaving.clear();
    const workers = this.workers.splice(0);
    for (const { worker } of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    await Promise.all(workers.map(({ running }) => running));
  }

  private async serve(
    taskQueue: string,
    options: Pick<WorkerOptions, 'activities' | 'workflowBundle'>,
  ): Promise<{ worker: Worker; running: Promise<void> }> {
    const folder = mkdtempSync(join(tmpdir(), 'longhaul-stage-'));
    const open = new OpenActivities(folder);
    const worker = await testWorker({
      connection: this.temporal.connection,
      taskQueue,
      interceptors: { activity: [guardActivities({ open })] },
      maxHeartbeatThrottleInterval: '2 seconds',
      ...options,
    });
    const running = worker.run().finally(() => rmSync(folder, { recursive: true }));
    const served = { worker, running };
    this.workers.push(served);
    return served;
  }
}

/** A sweep of all checkpoints of the harness's run, on two suites. */
export const sweepSpec = (name: string, more: object = {}) => ({
  name,
  project: 'tests',
  checkpoints: [{ run }],
  suites: [{ name: 'final' }, { name: 'twice', max_tasks: 3, samples: 2, temperature: 0.9 }],
  parallel: 2,
  ...more,
});

/** The results of the sweep with this name, as a table. */
export async function tableOf(harness: Harness, name: string) {
  const record = await readSweep(harness.store, `tests/${name}`);
  const { suites, rows } = await comparisonOf(harness.store, record);
  return { suites, rows };
}

/** Servers for the tests of a block. Each test gets a run with checkpoints 1 to `last`, and a stage; `use` receives both. */
export function useSweeps(
  last: number,
  use: (stage: SweepStage, environments: EnvironmentServer) => void,
): void {
  let environments: EnvironmentServer;
  let temporal: TestTemporal;
  let harness: Harness;
  let stage: SweepStage;
  beforeAll(async () => {
    [environments, temporal] = await Promise.all([startEnvironments(), startTemporal()]);
  });
  afterAll(async () => {
    await temporal?.stop();
    await environments?.close();
  });
  beforeEach(async () => {
    harness = await startHarness(environments);
    await trained(
      harness,
      last,
      Array.from({ length: last }, (_, index) => index + 1),
    );
    stage = await SweepStage.open(temporal, harness);
    use(stage, environments);
  });
  afterEach(async () => {
    await stage?.close();
    await harness?.close();
  });
}
