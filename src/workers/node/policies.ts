// Opens the policy of a node: its own engine, or a model on a Tinker server.
import { join } from 'node:path';
import {
  type BusyMeter,
  meteredEngine,
  meteredKeeper,
  meteredPolicy,
} from '../../activities/attempt/busy-meter.js';
import { createNativeEngine, type EngineDevice } from '../../engine/native/native-engine.js';
import { createStateLock } from '../../engine/native/state-lock.js';
import { TinkerEngine } from '../../engine/tinker/sampling.js';
import type { SentTokens } from '../../engine/tinker/sent-tokens.js';
import type { TinkerService } from '../../engine/tinker/service.js';
import { NativePolicyHolder } from '../../policy/native-states.js';
import { PolicyHolder } from '../../policy/policy-holder.js';
import { ServedStates } from '../../policy/served/served-states.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import type { TinkerConfig, WorkerConfig } from '../process/config.js';
import type { Tracing } from '../tracing/tracing.js';
import { openTinkerService } from './tinker-service.js';

interface Parts {
  store: ObjectStore;
  meter: BusyMeter;
  log: (message: string) => void;
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
  const metered = meteredEngine(createNativeEngine({ binary, log, device }), meter);
  const engine = tracing?.engine(metered) ?? metered;
  return new NativePolicyHolder({
    ...{ store, engine, log },
    lock: createStateLock(),
    folder: join(folder, 'policy'),
  });
}

/** Reads the key from `TINKER_API_KEY`. Throws if no model is configured and the server has several. */
export async function openServedPolicy(
  { url, service, model }: TinkerConfig,
  { store, by, folder, meter, log }: Parts & { by: string; folder: string },
): Promise<{ holder: PolicyHolder; sent: SentTokens }> {
  const tinker = openTinkerService(url);
  const policy = { service, model: model ?? (await onlyModel(tinker, service, log)) };
  const engine = new TinkerEngine(tinker, policy);
  const keeper = new ServedStates({ ...{ store, engine, policy, by, folder, log }, service: tinker });
  const holder = new PolicyHolder({
    store,
    engine: meteredPolicy(engine, meter),
    keeper: meteredKeeper(keeper, meter),
    lock: createStateLock(),
  });
  return { holder, sent: tinker.sent };
}

/** Waits for a server that is not up yet, and says so once. */
async function onlyModel(
  tinker: TinkerService,
  service: string,
  log: (message: string) => void,
): Promise<string> {
  let said = false;
  const onWaiting = ({ reason }: { reason?: string }): void => {
    if (!said && reason !== undefined) log(`the Tinker server ${service} is waited for: ${reason}`);
    said ||= reason !== undefined;
  };
  const models = await tinker.models({ onWaiting });
  const [only] = models;
  if (only !== undefined && models.length === 1) return only;
  throw new Error(
    `the Tinker server ${service} has ${models.length === 0 ? 'no model' : models.join(', ')}: name one with --served-model or ` +
      'LONGHAUL_SERVED_MODEL',
  );
}
