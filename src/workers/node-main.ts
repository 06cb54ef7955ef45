// Process entry of a node worker. Flags and variables: config.ts.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatasetCache } from '../data/dataset-cache.js';
import { keepLastCommit } from '../activities/step/upload-last-commit.js';
import { NewestEntries } from '../base/newest-entries.js';
import { createNodeActivities, createTransferActivities } from '../activities/node-activities.js';
import type { CheckpointStall, LastCommit } from '../activities/node-deps.js';
import { readAsset, RunDataCache } from '../data/run-data.js';
import { MadeSessions } from '../environments/openenv/made-sessions.js';
import { headersIn } from '../environments/openenv/server-options.js';
import { JournalFolder } from '../episode/journal-folder.js';
import type { EngineInfo } from '../engine/policy-engine.js';
import type { EnvironmentSpec } from '../spec/run-spec.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { openStore, probeStore } from '../store/open-store.js';
import { readWorkerConfig, type WorkerConfig } from './process/config.js';
import { environmentBackends } from './node/environment-backends.js';
import type { SentTokens } from '../engine/tinker/sent-tokens.js';
import type { PolicyHolder } from '../policy/policy-holder.js';
import { NodeDevice } from './node/node-device.js';
import { BusyMeter, observedBackend } from './node/observed-calls.js';
import { nativePolicy, openServedPolicy } from './node/policies.js';
import { keepLife } from './process/life-file.js';
import { type NodeParts, serveNode } from './node/node-worker.js';
import { openTracing } from './tracing/open-tracing.js';
import type { Tracing } from './tracing/tracing.js';
import { exitWith } from './process/worker-exit.js';
import { installRuntime, type WorkerLog } from './process/worker-log.js';

await exitWith('node', async () => {
  const config = readWorkerConfig(process.argv.slice(2));
  const log = installRuntime('node', config.metricsAddress);
  // Open the store first: without a fit store nothing else is worth waiting for.
  const store = await openStore(config.store);
  await probeStore(store);
  const tracing = await openTracing('node', config.node, log);
  await serveNode(config, () => createParts(config, store, tracing, log), log);
});

async function createParts(
  config: WorkerConfig,
  store: ObjectStore,
  tracing: Tracing | null,
  log: WorkerLog,
): Promise<NodeParts> {
  const token = config.gradingTokenFile
    ? (await readFile(config.gradingTokenFile, 'utf8')).trim()
    : undefined;
  const { life, serves } = keepLife(join(config.folder, 'life.json'), config.node, 'worker_restart');
  const meter = new BusyMeter();
  let isLeaving = false;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => (isLeaving = true));
  const leave = (): void => {
    // A second signal would cut off work that is still running.
    if (!isLeaving) process.kill(process.pid, 'SIGTERM');
    isLeaving = true;
  };
  const { holder, sent }: { holder: PolicyHolder; sent?: SentTokens } = config.tinker
    ? await openServedPolicy(config.tinker, {
        store,
        by: config.node,
        folder: join(config.folder, 'policy'),
        meter,
        log,
      })
    : {
        holder: nativePolicy(config, {
          ...{ store, meter, tracing, log },
          device: new NodeDevice({ folder: config.folder, leave, log }),
        }),
      };
  const { engine } = holder;
  const made = new MadeSessions(join(config.folder, 'sessions'), log);
  void made.closeLeft((variable) => headersIn('of a session that an earlier process left', variable));
  const environments = environmentBackends({
    ...{ url: config.environments, made, log },
    owner: { name: config.node, folder: join(config.folder, 'fleet') },
    verifierCode: (sha256) => readAsset(store, sha256),
    ...(token ? { token } : {}),
  });
  const deps = {
    store,
    node: config.node,
    runs: new RunDataCache(store, new DatasetCache(store)),
    holder,
    ...(sent ? { sent } : {}),
    journals: new JournalFolder(join(config.folder, 'journal'), log),
    backendFor: (spec: EnvironmentSpec, callTimeoutMs: number) =>
      observedBackend(environments.backendFor(spec, callTimeoutMs), meter, tracing ?? undefined),
    meter,
    life,
    lastCommits: new NewestEntries<LastCommit>(),
    checkpointStalls: new NewestEntries<CheckpointStall>(),
    log,
  };
  let found: EngineInfo | undefined;
  const ready = engine.info().then((info) => {
    found = info;
    if (!config.tinker) serves();
  });
  // A Tinker server may start later than this node.
  if (config.tinker) serves();
  ready.catch((error: unknown) => {
    if (config.tinker) log(`the Tinker server does not answer: ${(error as Error).message}`);
  });
  return {
    ...(config.tinker ? {} : { ready }),
    node: createNodeActivities(deps),
    transfers: createTransferActivities(deps),
    computesOn: () => found,
    keep: async (signal) => {
      const kept = await keepLastCommit(deps, signal);
      return kept
        ? `the state after step ${kept.step} of ${kept.run} is in the store`
        : 'no state to be kept';
    },
    tracing,
    close: async () => {
      await Promise.all([engine.close(), environments.close()]);
      await tracing?.close();
    },
  };
}
