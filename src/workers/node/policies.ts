// Opens the policy of a node: its own engine, or a model on a Tinker server.
import { join } from 'node:path';
import { createNativeEngine, type EngineDevice } from '../../engine/native/native-engine.js';
import type { PolicyEngine } from '../../engine/policy-engine.js';
import { TinkerEngine } from '../../engine/tinker/sampling.js';
import type { SentTokens } from '../../engine/tinker/sent-tokens.js';
import { nativePolicyHolder } from '../../policy/native-state-keeper.js';
import { PolicyHolder } from '../../policy/policy-holder.js';
import { ServedStateKeeper } from '../../policy/served/served-state-keeper.js';
import type { StateKeeper } from '../../policy/state-keeper.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import type { TinkerConfig, WorkerConfig } from '../process/config.js';
import type { WorkerLog } from '../process/worker-log.js';
import type { Tracing } from '../tracing/tracing.js';
import { type BusyMeter, observed, observedEngine } from './observed-calls.js';
import { keepSecret } from '../../base/known-secrets.js';
import { TinkerClient } from '../../engine/tinker/futures.js';
import { TinkerService } from '../../engine/tinker/service.js';

interface Parts {
  store: ObjectStore;
  meter: BusyMeter;
  log: WorkerLog;
}

interface NativeParts {
  tracing: Tracing | null;
  device: EngineDevice;
}

export function nativePolicy(
  { engine: binary, folder }: WorkerConfig,
  { store, meter, tracing, log, device }: Parts & NativeParts,
): PolicyHolder {
  if (!binary)
    throw new Error(
      'a node worker needs --engine or LONGHAUL_ENGINE, the path of the native engine, or --tinker or LONGHAUL_TINKER, the URL of a ' +
        'Tinker server',
    );
  const engine = observedEngine(createNativeEngine({ binary, log, device }), meter, tracing ?? undefined);
  return nativePolicyHolder({
    ...{ store, engine, log },
    folder: join(folder, 'policy'),
  });
}

/** Reads the key from `TINKER_API_KEY`. Throws if no model is configured and the server has several. */
export async function openServedPolicy(
  { url, service, model }: TinkerConfig,
  { store, by, folder, meter, log }: Parts & { by: string; folder: string },
): Promise<{ holder: PolicyHolder; sent: SentTokens }> {
  const tinker = openTinkerService(url);
  const models = tinker.models({ onWaiting: sayOnce(service, url, log) });
  // The node already serves: the answer is needed only to find a model without a name, and `engine.info` reports errors.
  models.catch(() => undefined);
  const policy = { service, model: model ?? onlyModel(await models, service) };
  const engine = new TinkerEngine(tinker, policy);
  const { during } = meter;
  const keeper = new ServedStateKeeper({ ...{ store, engine, policy, by, folder, log }, service: tinker });
  const holder = new PolicyHolder({
    store,
    engine: observed<PolicyEngine>(engine, { setVocabulary: during, generate: during }),
    keeper: observed<StateKeeper>(keeper, {
      ...{ holdBase: during, hold: during, holdForUpdate: during, apply: during },
      ...{ keep: during, upload: during },
    }),
  });
  return { holder, sent: tinker.sent };
}

/** Reports the first reason why the node waits for the server. */
function sayOnce(service: string, url: string, log: WorkerLog): (waiting: { reason?: string }) => void {
  let said = false;
  return ({ reason }) => {
    if (said || reason === undefined) return;
    said = true;
    const fix = `start the server, or correct --tinker or LONGHAUL_TINKER (${url})`;
    log(`the Tinker server ${service} is waited for: ${reason}; ${fix}`, { waits: true });
  };
}

function onlyModel(models: readonly string[], service: string): string {
  const [only] = models;
  if (only !== undefined && models.length === 1) return only;
  throw new Error(
    `the Tinker server ${service} has ${models.length === 0 ? 'no model' : models.join(', ')}: name one with --served-model or ` +
      'LONGHAUL_SERVED_MODEL',
  );
}

/** Reads the key from `TINKER_API_KEY`. */
export function openTinkerService(url: string): TinkerService {
  const key = process.env['TINKER_API_KEY'];
  if (key) keepSecret(key);
  return new TinkerService(new TinkerClient({ url, ...(key ? { key } : {}) }));
}
