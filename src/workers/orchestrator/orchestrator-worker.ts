// The worker of the queue `longhaul`: workflows, planning, control records, reports.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker, type WorkerOptions } from '@temporalio/worker';
import type { Client } from '@temporalio/client';
import type { OrchestratorActivities } from '../../activities/contracts.js';
import { orchestratorQueue } from '../../workflows/messages.js';
import { guardActivities, heartbeatIntervalMs } from '../attempt/activity-guard.js';
import type { Deployment, WorkerConfig } from '../process/config.js';
import { OpenActivities } from '../attempt/open-activities.js';
import { registerSearchAttributes } from './temporal-cluster.js';
import { connectClient } from '../temporal/temporal-connection.js';
import type { Tracing } from '../tracing/tracing.js';
import { connectWorker } from '../temporal/worker-connection.js';
import { cachedWorkflowBundle } from './workflow-bundle.js';

const workflowsFolder = fileURLToPath(new URL('../../workflows', import.meta.url));

/**
 * Pins each workflow execution to the build that started it, so that changed code never replays a history that it does not fit. At
 * continue-as-new the workflow moves to the current build (`workflows/continue-as-new.ts`).
 */
export function versioned(deployment: Deployment | null): Pick<WorkerOptions, 'workerDeploymentOptions'> {
  if (!deployment) return {};
  const version = { deploymentName: deployment.name, buildId: deployment.buildId };
  const workerDeploymentOptions = {
    version,
    useWorkerVersioning: true,
    defaultVersioningBehavior: 'PINNED',
  } as const;
  return { workerDeploymentOptions };
}

/** Call when the folder is locked. Serves until SIGTERM or SIGINT; resolves when all work has ended or gone back to Temporal. */
export async function serveOrchestrator(
  config: WorkerConfig,
  createActivities: (client: Client) => OrchestratorActivities | Promise<OrchestratorActivities>,
  log: (message: string) => void,
  tracing: Tracing | null = null,
): Promise<void> {
  const [{ client, close }, connection, codePath] = await Promise.all([
    connectClient(config.temporal, 60_000),
    connectWorker(config.temporal),
    cachedWorkflowBundle(workflowsFolder, undefined, tracing ? ['step-tracing'] : []),
  ]);
  try {
    const open = new OpenActivities(join(config.folder, 'open-activities'));
    await open.failPredecessors(client.activity, log);
    await registerSearchAttributes(client);
    const worker = await Worker.create({
      connection,
      namespace: config.temporal.namespace,
      taskQueue: orchestratorQueue,
      identity: `orchestrator ${process.pid}`,
      workflowBundle: { codePath },
      activities: { ...(await createActivities(client)) },
      interceptors: { activity: [...(tracing ? [tracing.activities] : []), guardActivities({ open })] },
      ...(tracing ? { sinks: tracing.sinks } : {}),
      ...versioned(config.deployment),
      maxConcurrentActivityTaskExecutions: 20,
      // A task waits this long for a dead worker; then another worker may take it.
      stickyQueueScheduleToStartTimeout: '2 seconds',
      maxHeartbeatThrottleInterval: heartbeatIntervalMs,
      shutdownGraceTime: '5 seconds',
      shutdownForceTime: '10 seconds',
    });
    await worker.run();
    open.handedOver();
  } finally {
    await close();
    await connection.close().catch(() => undefined);
  }
}
