// The worker of a node: one process, two queues, so that an hour's collect never blocks a checkpoint's upload.
import { randomUUID } from 'node:crypto';
import { hostname, totalmem } from 'node:os';
import { join } from 'node:path';
import { Worker, type WorkerOptions } from '@temporalio/worker';
import type { NodeActivities, TransferActivities } from '../activities/contracts.js';
import type { Numerics } from '../spec/records.js';
import { engineQueue, transferQueue } from '../workflows/messages.js';
import { guardActivities } from './activity-guard.js';
import type { WorkerConfig } from './config.js';
import { lockFolder } from './folder-lock.js';
import { reportNode } from './node-reports.js';
import { OpenActivities } from './open-activities.js';
import { connectClient, connectWorker } from './temporal-connection.js';

export interface NodeParts {
  node: NodeActivities;
  transfers: TransferActivities;
  /** Undefined until the engine has told it. */
  numerics(): Numerics | undefined;
  close(): Promise<void>;
}

/** Of each run: collect, evaluation and save are beside one another; the engine decides what really shares it. */
const engineActivities = 4;
const transferActivities = 2;

/** Bytes: of the machine, or of the container where that has less. */
function usableMemory(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Infinity);
}

/** Serves until SIGTERM or SIGINT; resolves when everything that ran has ended or was handed back. */
export async function serveNode(
  config: WorkerConfig,
  createParts: () => NodeParts | Promise<NodeParts>,
  log: (message: string) => void,
): Promise<void> {
  const lock = lockFolder(config.folder, `node worker ${config.node} of ${config.temporal.address}`);
  const [{ client, close }, connection] = await Promise.all([
    connectClient(config.temporal, 60_000),
    connectWorker(config.temporal),
  ]);
  const parts = await createParts();
  try {
    const open = new OpenActivities(join(config.folder, 'open-activities'));
    const handedBack = await open.failPredecessors(client.activity);
    if (handedBack.length > 0)
      log(`tried again after the end of an earlier worker: ${handedBack.join(', ')}`);
    const common = {
      connection,
      namespace: config.temporal.namespace,
      identity: `node ${config.node} ${process.pid}`,
      interceptors: { activity: [guardActivities({ open })] },
      maxHeartbeatThrottleInterval: '2 seconds',
      // Records guard every activity: what is cut off here is tried again elsewhere, so there is no reason to wait long.
      shutdownGraceTime: '3 seconds',
      shutdownForceTime: '8 seconds',
    } satisfies Partial<WorkerOptions>;
    const workers = await Promise.all([
      Worker.create({
        ...common,
        taskQueue: engineQueue(config.node),
        activities: { ...parts.node },
        maxConcurrentActivityTaskExecutions: engineActivities * config.places,
      }),
      Worker.create({
        ...common,
        taskQueue: transferQueue(config.node),
        activities: { ...parts.transfers },
        maxConcurrentActivityTaskExecutions: transferActivities * config.places,
      }),
    ]);
    const offer = {
      ...{ id: config.node, instance: randomUUID(), host: hostname() },
      ...{ gpu: null, memory_bytes: usableMemory(), places: config.places },
    };
    const report = () => {
      const numerics = parts.numerics();
      return { ...offer, ...(numerics ? { numerics } : {}) };
    };
    const reports = reportNode(client, report, log);
    let asked = false;
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => (asked = true));
    try {
      await Promise.all(workers.map((worker) => worker.run())).then(
        () => open.handedOver(),
        (error: unknown) => {
          // A long engine verb outlives the force time; the process ends with it all the same.
          if (!asked) throw error;
          log(`ended before all of its work had: ${(error as Error).message}`);
        },
      );
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
