// Real processes around one store: a Temporal server, an environment server, orchestrator workers, and node workers. The node workers share
// one node id, so that each may continue the work of another.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { WorkflowHandleWithFirstExecutionRunId } from '@temporalio/client';
import {
  startEnvironmentProcess,
  testToken,
  type EnvironmentProcess,
} from '../servers/environment-process.js';
import { findEngine } from '../find-tools.js';
import { startTemporal, type TestTemporal, type TestTemporalOptions } from '../servers/temporal-server.js';
import { Stuck, until } from '../until.js';
import { WorkerProcess } from '../worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import type { OpenedStore } from '../../../src/store/runs/episodes.js';
import { openStore } from '../../../src/store/open-store.js';
import { statusQuery } from '../../../src/workflows/messages.js';
import type { trainingRun, TrainingResult } from '../../../src/workflows/run/training-run.js';
import type { TrainingOptions } from '../../../src/workflows/run/training-options.js';

export type RunHandle = WorkflowHandleWithFirstExecutionRunId<typeof trainingRun>;

export interface ClusterOptions {
  nodes?: number;
  orchestrators?: number;
  /** Address of the store; default: a directory in the cluster's folder. */
  store?: string;
  temporal?: TestTemporalOptions;
  /** Where the cluster's folder is made; default: the folder for temporary files. */
  below?: string;
  /** Program that nodes start as their engine; default: the engine itself. */
  engine?: string;
  /** Environment variables of every worker. */
  env?: Readonly<Record<string, string>>;
  /** Starts a proxy before the Temporal server, and returns the address that workers use instead of the server's. */
  gateway?: (temporal: string) => Promise<string>;
}

const script = (path: string): string => fileURLToPath(new URL(`../../../dist/${path}`, import.meta.url));

export class Cluster {
  /** Names of the runs that were started, and of those that may not be started: other files had them. */
  readonly started = new Set<string>();
  refused: ReadonlySet<string> = new Set();
  readonly orchestrators: WorkerProcess[] = [];
  readonly nodes: WorkerProcess[] = [];
  private readonly further = new Set<WorkerProcess>();

  private constructor(
    private readonly options: ClusterOptions,
    readonly folder: string,
    readonly storeAddress: string,
    readonly store: OpenedStore,
    /** `startTemporal` replaces it. */
    public temporal: TestTemporal,
    /** Address of the server for workers. */
    private readonly gateway: string,
    readonly environments: EnvironmentProcess,
  ) {}

  static async start(options: ClusterOptions = {}): Promise<Cluster> {
    const folder = mkdtempSync(join(options.below ?? tmpdir(), 'longhaul-cluster-'));
    const storeAddress = options.store ?? `dir:${join(folder, 'store')}`;
    const [temporal, environments] = await Promise.all([
      startTemporal(options.temporal),
      startEnvironmentProcess(),
    ]);
    const gateway = options.gateway ? await options.gateway(temporal.address) : temporal.address;
    writeFileSync(join(folder, 'grading-token'), testToken);
    const store = await openStore(storeAddress);
    const cluster = new Cluster(options, folder, storeAddress, store, temporal, gateway, environments);
    await Promise.all([
      cluster.scaleOrchestrators(options.orchestrators ?? 1),
      cluster.scaleNodes(options.nodes ?? 1),
    ]);
    return cluster;
  }

  /** Starts orchestrators, or stops the last ones, until `count` run. */
  async scaleOrchestrators(count: number): Promise<void> {
    for (const worker of this.orchestrators.splice(count)) {
      await worker.leave();
      await worker.stop();
    }
    while (this.orchestrators.length < count) {
      const n = this.orchestrators.length + 1;
      this.orchestrators.push(
        await this.startWorker(`orchestrator ${n}`, 'workers/orchestrator-main.js', `orchestrator-${n}`),
      );
    }
  }

  /** The same for nodes. Those that it starts share an id: if one is left, the pool must not hear that the node leaves. */
  async scaleNodes(count: number): Promise<void> {
    for (const node of this.nodes.splice(count)) {
      if (count === 0) await node.leave();
      await node.stop();
    }
    while (this.nodes.length < count) {
      const n = this.nodes.length + 1;
      const args = this.nodeArguments('shared');
      this.nodes.push(await this.startWorker(`node ${n}`, 'workers/node-main.js', `node-${n}`, args));
    }
  }

  /** Starts a further node, with its own id and folder. (The cluster's other nodes share an id.) */
  async startNode(
    id: string,
    args: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
  ): Promise<WorkerProcess> {
    const node = await this.startWorker(
      `node ${id}`,
      'workers/node-main.js',
      `node-${id}`,
      [...this.nodeArguments(id), ...args],
      env,
    );
    this.nodes.push(node);
    this.further.add(node);
    return node;
  }

  /** Nodes of `startNode`. */
  furtherNodes(): WorkerProcess[] {
    return this.nodes.filter((node) => this.further.has(node));
  }

  private startWorker(
    name: string,
    path: string,
    folder: string,
    args: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
  ): Promise<WorkerProcess> {
    return WorkerProcess.start({
      name,
      script: script(path),
      args: ['--namespace', 'default', '--store', this.storeAddress, ...args],
      folder: join(this.folder, folder),
      temporal: this.gateway,
      env: { ...this.options.env, ...env },
    });
  }

  private nodeArguments(id: string): string[] {
    return [
      ...['--node', id, '--engine', this.options.engine ?? findEngine()],
      ...['--environments', this.environments.url],
      ...['--grading-token-file', join(this.folder, 'grading-token')],
    ];
  }

  /** Starts the run's workflow. `id`: another workflow id, as if a person had started it by hand. */
  run(
    spec: RunSpec,
    { id = `train/${spec.name}`, ...options }: TrainingOptions & { id?: string } = {},
  ): Promise<RunHandle> {
    if (this.refused.has(spec.name))
      throw new Error(`another test file has a run with the name ${spec.name}`);
    this.started.add(spec.name);
    return this.temporal.client.workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: 'longhaul',
      workflowId: id,
      args: [spec, options],
      // The same as in `longhaul train`.
      workflowTaskTimeout: '5 seconds',
    });
  }

  /** Waits for the run's end. If the run is blocked, fails or takes too long, throws an error with the last log lines of its workers. */
  async ended(run: RunHandle, deadlineMs = 300_000): Promise<TrainingResult> {
    const over = { value: false };
    const result = run.result().finally(() => (over.value = true));
    const watch = until(
      async () => {
        if (over.value) return true;
        const status = await run.query(statusQuery).catch(() => null);
        if (status?.blocked) throw new Stuck(`the run is blocked: ${status.blocked.reason}`);
        return false;
      },
      `${run.workflowId} to end`,
      deadlineMs,
    );
    try {
      await Promise.race([result, watch]);
      return await result;
    } catch (error) {
      result.catch(() => undefined);
      throw this.withLogs(error);
    }
  }

  private withLogs(error: unknown): Error {
    const logs = [...this.orchestrators, ...this.nodes].map(
      ({ name, log }) => `${name}:\n${log.split('\n').slice(-12).join('\n')}`,
    );
    return new Error(`${(error as Error).message}\n${logs.join('\n')}`, { cause: error });
  }

  /** The worker that reaches the point first, and another worker. Only the first worker is held there. */
  async firstAt(
    point: string,
    workers: readonly WorkerProcess[],
  ): Promise<{ first: WorkerProcess; second: WorkerProcess }> {
    const first = await until(
      () => workers.find((worker) => worker.hasReached(point)),
      `a worker to reach ${point}`,
    ).catch((error: unknown) => {
      throw this.withLogs(error);
    });
    const others = workers.filter((worker) => worker !== first);
    for (const worker of others) worker.letGo(point);
    return { first, second: others[0] ?? first };
  }

  /** Stops all nodes by SIGTERM, so that the pool no longer leases any of them. */
  async nodesLeave(): Promise<void> {
    await Promise.all(
      this.nodes.splice(0).map(async (node) => {
        await node.leave().finally(() => node.stop());
      }),
    );
  }

  /** Kills the server. Its port is kept for the next server, so that workers find it. */
  async killTemporal(): Promise<void> {
    await this.temporal.kill();
  }

  async startTemporal(options: TestTemporalOptions = {}): Promise<void> {
    const port = Number(this.temporal.address.split(':')[1]);
    this.temporal = await startTemporal({ ...options, port });
  }

  /** A handle of the same run on the newest server. */
  followed(run: RunHandle): RunHandle {
    const { workflowId, firstExecutionRunId } = run;
    return Object.assign(this.temporal.client.workflow.getHandle<typeof trainingRun>(workflowId), {
      firstExecutionRunId,
    });
  }

  async stop(): Promise<void> {
    await Promise.all([...this.nodes, ...this.orchestrators].map((worker) => worker.stop()));
    await this.temporal.stop();
    await this.environments.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
