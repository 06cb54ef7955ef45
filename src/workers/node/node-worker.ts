// The worker of a node: one process with two queues, so that an hour of rollouts does not block the upload of a checkpoint.
import { randomUUID } from 'node:crypto';
import { hostname, totalmem } from 'node:os';
import { join } from 'node:path';
import { Worker, type WorkerOptions } from '@temporalio/worker';
import type { NodeActivities, TransferActivities } from '../../activities/contracts.js';
import type { EngineInfo } from '../../engine/policy-engine.js';
import { engineQueue, transferQueue } from '../../workflows/messages.js';
import { guardActivities, heartbeatIntervalMs } from '../attempt/activity-guard.js';
import type { WorkerConfig } from '../process/config.js';
import { Departure } from './node-departure.js';
import { lockFolder } from '../process/folder-lock.js';
import { reportNode } from './node-reports.js';
import { OpenActivities } from '../attempt/open-activities.js';
import { connectClient } from '../temporal/temporal-connection.js';
import type { Tracing } from '../tracing/tracing.js';
import { connectWorker } from '../temporal/worker-connection.js';

export interface NodeParts {
  node: NodeActivities;
  transfers: TransferActivities;
  /** Null or absent: no tracing. */
  tracing?: Tracing | null;
  /** Rejects if the node cannot serve: its engine does not start, or may not compute. Absent: it is ready. */
  ready?: Promise<void>;
  /** Undefined until the engine has reported its device. */
  computesOn(): Pick<EngineInfo, 'numerics' | 'gpu'> | undefined;
  /** Uploads states that perhaps only this node has; returns a log message. Called when nothing runs on the engine any more. */
  keep?(signal: AbortSignal): Promise<string>;
  close(): Promise<void>;
}

/** Activities of one run at the same time: rollouts, an evaluation and a save. The engine decides which of them really run in parallel. */
const engineActivities = 4;
const transferActivities = 2;

/** Memory in bytes of the machine, or of the container if it has less. */
function usableMemory(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Infinity);
}

/** Serves until SIGTERM or SIGINT. Resolves within `config.graceMs` after the signal, when all work has ended or gone back to Temporal. */
export async function serveNode(
  config: WorkerConfig,
  createParts: () => NodeParts | Promise<NodeParts>,
  log: (message: string) => void,
): Promise<void> {
  const departure = new Departure({ node: config.node, graceMs: config.graceMs, log });
  const lock = lockFolder(config.folder, `node worker ${config.node} of ${config.temporal.address}`);
  const [{ client, close }, connection] = await Promise.all([
    connectClient(config.temporal, 60_000),
    connectWorker(config.temporal),
  ]);
  const parts = await createParts();
  try {
    const open = new OpenActivities(join(config.folder, 'open-activities'));
    const handedBack = await open.failPredecessors(client.activity, log);
    if (handedBack.length > 0)
      log(`released for another try, because an earlier worker ended: ${handedBack.join(', ')}`);
    await parts.ready;
    const common = {
      connection,
      namespace: config.temporal.namespace,
      identity: `node ${config.node} ${process.pid}`,
      maxHeartbeatThrottleInterval: heartbeatIntervalMs,
      // The departure decides which work is interrupted, and when.
      shutdownGraceTime: config.graceMs,
    } satisfies Partial<WorkerOptions>;
    const traced = parts.tracing ? [parts.tracing.activities] : [];
    const [engine, transfers] = await Promise.all([
      Worker.create({
        ...common,
        taskQueue: engineQueue(config.node),
        interceptors: { activity: [...traced, guardActivities({ open, cutOff: departure.cutOff })] },
        activities: { ...parts.node },
        maxConcurrentActivityTaskExecutions: engineActivities * config.places,
      }),
      Worker.create({
        ...common,
        taskQueue: transferQueue(config.node),
        // A running upload may finish: only the last call interrupts it.
        interceptors: { activity: [...traced, guardActivities({ open, cutOff: departure.lastCall })] },
        activities: { ...parts.transfers },
        maxConcurrentActivityTaskExecutions: transferActivities * config.places,
      }),
    ]);
    const offer = {
      ...{ id: config.node, instance: randomUUID(), host: hostname() },
      ...{ memory_bytes: usableMemory(), places: config.places },
    };
    const report = () => {
      const { numerics, gpu = null } = parts.computesOn() ?? {};
      return { ...offer, gpu, ...(numerics ? { numerics } : {}) };
    };
    const reports = reportNode(client, report, log);
    const workers = [engine, transfers];
    departure.serving(() => {
      void reports.drain();
      // The SDK also receives the signal, and may have shut down the worker already.
      for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    });
    // Some work cannot be interrupted and may outlast the grace. Sign off now, so that no run waits for this node.
    departure.lastCall.addEventListener('abort', () => void reports.leave());
    const keep = async (): Promise<void> => {
      if (!departure.begun || !parts.keep) return;
      const problem = (error: Error): string =>
        departure.lastCall.aborted ? 'the grace period was too short' : error.message;
      log(
        await parts
          .keep(departure.lastCall)
          .catch((error: Error) => `the last state is not in the store: ${problem(error)}`),
      );
    };
    try {
      await Promise.all([engine.run().then(keep), transfers.run()]);
      open.handedOver();
    } catch (error) {
      if (!departure.begun) throw error;
      log(`ended before its work had ended: ${(error as Error).message}`);
    } finally {
      await reports.leave();
    }
  } finally {
    await parts.close();
    await close();
    await connection.close().catch(() => undefined);
    lock.release();
  }
}
