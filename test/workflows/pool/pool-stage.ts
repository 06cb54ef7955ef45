// The real pool and real workflows, without engines: an orchestrator worker, and nodes that come and go by their own reports.
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { WorkflowHandleWithFirstExecutionRunId } from '@temporalio/client';
import type { Worker, WorkflowBundleOption } from '@temporalio/worker';
import { testWorker } from '../../support/test-worker.js';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { LeaseRequest } from '../../../src/activities/contracts.js';
import { closedRuns } from '../../../src/activities/run/request-lease.js';
import type { Numerics } from '../../../src/spec/records/numerics.js';
import { guardActivities } from '../../../src/workers/attempt/activity-guard.js';
import { OpenActivities } from '../../../src/workers/attempt/open-activities.js';
import { isOver, requestLease } from '../../../src/workers/orchestrator/temporal-cluster.js';
import {
  defaultPoolId,
  engineQueue,
  nodeDownSignal,
  nodeDrainingSignal,
  type NodeReport,
  nodeReportIntervalMs,
  nodeUpSignal,
  orchestratorQueue,
  poolQuery,
  type PoolView,
  transferQueue,
} from '../../../src/workflows/messages.js';
import type { nodePool } from '../../../src/workflows/pool/node-pool.js';
import type { trainingRun } from '../../../src/workflows/run/training-run.js';
import {
  type ConnectedTemporal,
  startTemporal,
  type TestTemporal,
} from '../../support/servers/temporal-server.js';
import { hurriedBundle } from '../hurried-bundle.js';
import { reportEveryMs } from '../hurried/times.js';
import {
  type AllActivities,
  gate,
  outlineOf,
  type ScriptedRun,
  scriptRun,
  startRun,
  uniqueName,
  workflowBundle,
} from '../scripted-run.js';

/** Workflows, and the interval of nodes' reports that fits their times. */
export interface StageTimes {
  workflows: () => Promise<WorkflowBundleOption>;
  reportEveryMs: number;
}

const usualTimes: StageTimes = { workflows: workflowBundle, reportEveryMs: nodeReportIntervalMs };
export const hurriedTimes: StageTimes = { workflows: hurriedBundle, reportEveryMs };

export interface StageNode {
  /** Like a process that is killed after a report: it sends no more reports, and takes no work. */
  vanish(): Promise<void>;
  drain(): Promise<void>;
}

export class PoolStage {
  /** All requests of runs, in order. */
  readonly requests: LeaseRequest[] = [];
  /** The numerics in the runs' records. */
  numerics: Numerics | null = null;
  /** The pool receives a request only after this has resolved; `requests` contains it already. */
  before: (request: LeaseRequest) => Promise<unknown> | undefined = () => undefined;
  private orchestrator: Worker | null = null;
  private isAway = false;
  private readonly scripts = new Map<string, ScriptedRun>();
  private readonly workers: { worker: Worker; running: Promise<void> }[] = [];
  private readonly leave: (() => Promise<void>)[] = [];

  private constructor(
    readonly temporal: ConnectedTemporal,
    private readonly times: StageTimes,
  ) {}

  static async open(temporal: ConnectedTemporal, times = usualTimes): Promise<PoolStage> {
    const stage = new PoolStage(temporal, times);
    stage.orchestrator = await stage.serveOrchestrator();
    return stage;
  }

  /** As if all workers were away: the pool receives nothing, and no node can report. */
  async outage(milliseconds: number, meanwhile: () => Promise<void> = async () => undefined): Promise<void> {
    this.isAway = true;
    const before = this.workers.find(({ worker }) => worker === this.orchestrator);
    this.orchestrator?.shutdown();
    await before?.running;
    await meanwhile();
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
    this.orchestrator = await this.serveOrchestrator();
    // Before the next report arrives, the pool does what its timers demand.
    await this.view().catch(() => undefined);
    this.isAway = false;
  }

  /** `called(call)` runs before the run's activity on this node does its work. */
  async node(
    id: string,
    { numerics, called = () => undefined }: { numerics?: Numerics; called?: (call: string) => unknown } = {},
  ): Promise<StageNode> {
    const activities = this.activities(id, called);
    const workers = [
      await this.serve(engineQueue(id), activities),
      await this.serve(transferQueue(id), activities),
    ];
    const report = {
      ...{ id, instance: randomUUID(), host: 'box', gpu: null, memory_bytes: 1, places: 1 },
      ...(numerics ? { numerics } : {}),
    };
    // Reports like node-reports.ts, but can stop without notice.
    const say = async (): Promise<unknown> =>
      this.isAway ||
      this.temporal.client.workflow
        .signalWithStart<typeof nodePool, [NodeReport]>('nodePool', {
          workflowId: defaultPoolId,
          taskQueue: orchestratorQueue,
          args: [],
          signal: nodeUpSignal,
          signalArgs: [report],
        })
        .catch(() => undefined);
    await say();
    let said: Promise<unknown> = Promise.resolve();
    // On a busy server, one report may still wait when the next one is due.
    const timer = setInterval(() => void (said = Promise.all([said, say()])), this.times.reportEveryMs);
    const { instance } = report;
    this.leave.push(async () => {
      clearInterval(timer);
      // A report still in flight would add the node to the next test's pool.
      await said;
      await this.pool.signal(nodeDownSignal, { id, instance }).catch(() => undefined);
    });
    await this.until(({ nodes }) => nodes.some((node) => node.id === id && node.state === 'up'));
    return {
      vanish: async () => {
        clearInterval(timer);
        await say();
        for (const worker of workers) worker.shutdown();
      },
      drain: async () => {
        clearInterval(timer);
        await this.pool.signal(nodeDrainingSignal, { id, instance });
      },
    };
  }

  run(script: ScriptedRun): Promise<WorkflowHandleWithFirstExecutionRunId<typeof trainingRun>> {
    this.scripts.set(script.outline.run, script);
    return startRun(this.temporal, orchestratorQueue, script.outline.name);
  }

  get pool() {
    return this.temporal.client.workflow.getHandle(defaultPoolId);
  }

  view(): Promise<PoolView> {
    return this.pool.query(poolQuery);
  }

  async until(holds: (view: PoolView) => boolean, deadlineMs = 120_000): Promise<PoolView> {
    const deadline = Date.now() + deadlineMs;
    for (;;) {
      const view = await this.view().catch(() => null);
      if (view && holds(view)) return view;
      if (Date.now() > deadline) throw new Error(`the pool did not get there: ${JSON.stringify(view)}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Ends all nodes and all workers. */
  async close(): Promise<void> {
    await Promise.all(this.leave.map((leave) => leave()));
    for (const { worker } of this.workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    await Promise.all(this.workers.map(({ running }) => running));
  }

  private serveOrchestrator(): Promise<Worker> {
    const { client } = this.temporal;
    return this.serve(orchestratorQueue, {
      ...this.activities('nobody'),
      requestLease: async (input) => {
        const request = { ...input, numerics: this.numerics };
        this.requests.push(request);
        await this.before(request);
        return requestLease(client, request);
      },
      closedRuns: (input) => closedRuns({ isOver: (run) => isOver(client, run) }, input),
    });
  }

  private async serve(taskQueue: string, activities: AllActivities): Promise<Worker> {
    const folder = mkdtempSync(join(tmpdir(), 'longhaul-stage-'));
    const open = new OpenActivities(folder);
    const worker = await testWorker({
      connection: this.temporal.connection,
      taskQueue,
      activities: { ...activities },
      interceptors: { activity: [guardActivities({ open })] },
      maxHeartbeatThrottleInterval: '2 seconds',
      ...(taskQueue === orchestratorQueue ? { workflowBundle: await this.times.workflows() } : {}),
    });
    const running = worker.run().finally(() => rmSync(folder, { recursive: true }));
    this.workers.push({ worker, running });
    return worker;
  }

  /** The activities of the script that the input names. */
  private activities(node: string, called: (call: string) => unknown = () => undefined): AllActivities {
    return new Proxy({} as AllActivities, {
      ownKeys: () => activityNames,
      getOwnPropertyDescriptor: () => ({ configurable: true, enumerable: true }),
      get: (_, name: keyof AllActivities) => async (input: never) => {
        const { run, spec, step } = input as { run?: string; spec?: { name: string }; step?: number };
        const script = this.scripts.get(run ?? spec?.name ?? '');
        if (!script) throw new Error(`${node} knows no run ${run}`);
        await called(`${run} ${name} ${step}`);
        return script.activities[name](input);
      },
    });
  }
}

const activityNames = Object.keys(scriptRun(outlineOf('names')).activities);

/** The time from a node's death until its leases are revoked. */
export const detectedWithinMs = 2 * nodeReportIntervalMs;

const phases = [{ name: 'grpo', kind: 'grpo' as const, steps: 3 }];

/** A run of three steps that neither saves nor evaluates. */
export function shortScript(name: string): ScriptedRun {
  return scriptRun(outlineOf(uniqueName(name), { phases, eval_interval: 0, ckpt_interval: 0 }));
}

/** A run like that of `shortScript`, held in its rollouts of step 2 until `release`. `nodes`: number of nodes that share its rollouts. */
export function heldScript(name: string, nodes?: number): ScriptedRun & { held: ReturnType<typeof gate> } {
  const held = gate();
  const run = shortScript(name);
  run.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
  const { openRun } = run.activities;
  if (nodes !== undefined)
    run.activities.openRun = async (input) => ({
      ...(await openRun(input)),
      placement: { priority: 0, nodes },
    });
  return Object.assign(run, { held });
}

/** A Temporal server for the tests of a block, and a new pool for each test, which `use` receives. */
export function usePool(
  use: (stage: PoolStage) => void,
  options?: Parameters<typeof startTemporal>[0],
  times = usualTimes,
): void {
  let temporal: TestTemporal;
  let stage: PoolStage;
  beforeAll(async () => {
    [temporal] = await Promise.all([startTemporal(options), times.workflows()]);
  });
  afterAll(() => temporal?.stop());
  beforeEach(async () => {
    stage = await PoolStage.open(temporal, times);
    use(stage);
  });
  afterEach(async () => {
    await stage.close();
    await stage.pool.terminate().catch(() => undefined);
  });
}
