// Process entry of the orchestrator worker. Flags and variables: config.ts.
import { hostname } from 'node:os';
import { join } from 'node:path';
import { DatasetCache } from '../activities/dataset-cache.js';
import { createOrchestratorActivities } from '../activities/orchestrator-activities.js';
import { RunDataCache } from '../activities/run-data.js';
import { openStore, probeStore } from '../store/open-store.js';
import { readWorkerConfig } from './config.js';
import { keepLife } from './life-file.js';
import { serveOrchestrator } from './orchestrator-worker.js';
import { clusterId, isOver, ownerState, recordedAddress, requestLease } from './temporal-cluster.js';
import { exitWith, installLogger } from './worker-log.js';

const log = installLogger('orchestrator');

await exitWith('orchestrator', async () => {
  const config = readWorkerConfig(process.argv.slice(2));
  const store = await openStore(config.store);
  await probeStore(store);
  const datasets = new DatasetCache(store);
  await serveOrchestrator(config, (client) => {
    // The folder is locked by now.
    const { life } = keepLife(join(config.folder, 'life.json'), 'orchestrator', 'orchestrator_restart');
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
  });
});
