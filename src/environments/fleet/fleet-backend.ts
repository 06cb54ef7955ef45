// Fleet as an environment: each episode has an instance of its own, made for its task and deleted after it.
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { abortable, pause } from '../../base/abortable.js';
import { awakeNow } from '../../base/awake-clock.js';
import { Backoff } from '../../base/backoff.js';
import type { Digest } from '../../spec/records/parts.js';
import type { Task } from '../../spec/records/task.js';
import {
  type Environment,
  type EnvironmentBackend,
  EnvironmentError,
  type OpenOptions,
} from '../environment.js';
import { KnownTools } from '../tool-schema.js';
import type { Semaphore } from '../semaphore.js';
import { fleetEpisode } from './fleet-episode.js';
import { FleetInstances, type Order, type Owner } from './fleet-instances.js';
import { fleetRequests } from './fleet-request.js';
import { InstanceApi } from './instance-api.js';
import { McpSession } from './mcp-session.js';
import { FullAccount, type Instance, Orchestrator } from './orchestrator.js';
import type { KnownPlaces } from './server-places.js';

interface FleetOptions {
  url: string;
  apiKey: string;
  region?: string;
  /** Fleet ends an instance so many seconds after its creation. */
  ttlSeconds: number;
  callTimeoutMs: number;
  /** Places for instances that run at the same time. */
  places: Semaphore;
  owner: Owner;
  /** The code of a task's verifier, by its sha256. */
  verifierCode: (sha256: Digest) => Promise<string>;
}

/** How long an episode waits for a free instance of the account before the wait is an outage. */
const refusedMs = 10 * 60_000;
const refusedPauses: [number, number] = [1_000, 30_000];
const closeMs = 15_000;
const deletedWithinMs = 10_000;

export function createFleetBackend(options: FleetOptions): EnvironmentBackend {
  const { url, apiKey, region, ttlSeconds, callTimeoutMs, places, owner, verifierCode } = options;
  const request = fleetRequests(url, apiKey);
  const orchestrator = new Orchestrator(request);
  const instances = new FleetInstances(orchestrator, owner);
  const knownTools = new KnownTools();
  let closed = false;

  function orderOf(task: Task): Order {
    const { env_key, env_version, data_key, data_version, env_variables } = task;
    return {
      env_key,
      ...(env_version === undefined ? {} : { env_version }),
      ...(data_key === undefined ? {} : { data_key }),
      ...(data_version === undefined ? {} : { data_version }),
      ...(region === undefined ? {} : { region }),
      ...(Object.keys(env_variables).length === 0 ? {} : { env_variables }),
      ttl_seconds: ttlSeconds,
    };
  }

  /** Waits while the account has no place. */
  async function make(task: Task, options: OpenOptions, signal: AbortSignal): Promise<Instance> {
    const { run = 'longhaul', episodeId, opening = options.tryNumber, onWait } = options;
    const pauses = new Backoff(refusedPauses);
    const giveUpAt = awakeNow() + refusedMs;
    for (;;) {
      try {
        return await instances.make(orderOf(task), { run, episodeId, opening }, signal, onWait);
      } catch (error) {
        const isFull = error instanceof EnvironmentError && error.reason === 'capacity';
        if (!isFull || awakeNow() > giveUpAt) throw error;
        // A rate limit says nothing about free places.
        if (error instanceof FullAccount) places.shrinkTo(instances.count);
        onWait?.(error.message);
      }
      await pause(pauses.next(), signal);
    }
  }

  async function open(task: Task, options: OpenOptions, signal: AbortSignal): Promise<Environment> {
    const { verifier } = task;
    if (verifier === undefined)
      throw new EnvironmentError('failed', 'open', `the task ${task.task_key} has no verifier`);
    // One signal stops hundreds of episodes, so Node's warning about a leak would be wrong.
    setMaxListeners(0, signal);
    const release = await places.acquire(signal);
    let instance: Instance | undefined;
    const end = async (made: Instance): Promise<void> => {
      // An instance counts in the account until it is gone.
      const isGone = instances.end(made).finally(release);
      await Promise.race([isGone, sleep(deletedWithinMs, undefined, { ref: false })]);
    };
    try {
      if (closed) throw new Error('the environment backend is closed');
      const code = await abortable(verifierCode(verifier), signal);
      instance = await make(task, options, signal);
      const endsAt = Date.now() + ttlSeconds * 1000;
      const api = new InstanceApi(instance, orchestrator);
      const made = instance;
      const entered = async (): Promise<McpSession> => {
        // Like Fleet's client, resets new instances and continues if Fleet refuses this. A reset without an answer may still come later and undo
        // the episode's first calls, so its instance is given up.
        await api.reset(signal).catch((error: unknown) => {
          if (made.adopted || !(error instanceof EnvironmentError) || error.reason !== 'reset') throw error;
        });
        return McpSession.open(made.root, apiKey, signal, knownPlaces(task));
      };
      const session = await entered().catch(async (error: unknown) => {
        throw error instanceof EnvironmentError
          ? await orchestrator.chargeable(error, error.reason === 'reset' ? 'reset' : 'open', made.id)
          : error;
      });
      return fleetEpisode({
        ...{ task, code, api, session, instanceId: made.id, request, orchestrator, callTimeoutMs },
        ...(made.region === undefined ? {} : { region: made.region }),
        endsAt,
        tools: knownTools.listOf(task.env_key, session.tools),
        onClose: () => end(made),
      });
    } catch (error) {
      if (instance) await end(instance);
      else release();
      throw error;
    }
  }

  const placesOf = new Map<string, KnownPlaces>();
  function knownPlaces({ env_key, env_version }: Task): KnownPlaces {
    const key = JSON.stringify([env_key, env_version]);
    const known = placesOf.get(key) ?? (new Map() as KnownPlaces);
    placesOf.set(key, known);
    return known;
  }

  let probing: Promise<boolean> | undefined;
  void instances.sweepLeft();
  return {
    open,
    healthy() {
      probing ??= orchestrator
        .account()
        .then(
          () => true,
          () => false,
        )
        .finally(() => (probing = undefined));
      return probing;
    },
    async close() {
      closed = true;
      await instances.close(closeMs);
    },
  };
}
