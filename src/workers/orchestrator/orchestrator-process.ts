// Assembles the orchestrator worker.
import { hostname } from 'node:os';
import type { Client } from '@temporalio/client';
import type { OrchestratorActivities } from '../../activities/contracts.js';
import { DatasetCache } from '../../data/dataset-cache.js';
import { createOrchestratorActivities } from '../../activities/orchestrator-activities.js';
import { RunDataCache } from '../../data/run-data.js';
import { openStore, probeStore } from '../../store/open-store.js';
import type { WorkerConfig } from '../process/config.js';
import type { KeptLife } from '../process/life-file.js';
import { serveOrchestrator } from './orchestrator-worker.js';
import { clusterId, isOver, ownerState, recordedAddress, requestLease } from './temporal-cluster.js';
import { openTracing } from '../tracing/open-tracing.js';
import { installRuntime } from '../process/worker-log.js';

/** Call when the folder is locked. Resolves when the worker has ended. */
export async function runOrchestrator(config: WorkerConfig, { life, serves }: KeptLife): Promise<void> {
  const log = installRuntime('orchestrator', config.metricsAddress);
  const tracing = await openTracing('orchestrator', `${hostname()}-${process.pid}`, log);
  const store = await openStore(config.store);
  await probeStore(store);
  const datasets = new DatasetCache(store);
  const createActivities = (client: Client): OrchestratorActivities => {
    serves();
    return createOrchestratorActivities({
      store,
      life,
      datasets,
      runs: new RunDataCache(store, datasets),
      temporalAddress: recordedAddress(config.temporal.address, hostname()),
      clusterId: () => clusterId(client),
      ownerState: (owner) => ownerState(owner, config.temporal, client, hostname()),
      requestLease: (request) => requestLease(client, request),
      isOver: (run) => isOver(client, run),
      log,
    });
  };
  try {
    await serveOrchestrator(config, createActivities, log, tracing);
  } finally {
    await tracing?.close();
  }
}
