// Identifies the environment that an evaluation is played on. The identity is in the suite's record and so in the suite's digest; results
// from two servers therefore never count as results of one server. The environment is asked whenever a suite is made, because the server
// may have changed.
import { setTimeout as sleep } from 'node:timers/promises';
import type { NodeDeps } from '../node-deps.js';
import type { RunData } from '../../data/run-data.js';
import { currentScope } from '../attempt/scope.js';
import { OpenWaits } from '../step/open-waits.js';
import { awakeNow } from '../../base/awake-clock.js';
import { EnvironmentError } from '../../environments/environment.js';
import type { EnvironmentFacts } from '../../environments/environment-kind.js';
import { environmentKind } from '../../environments/environment-kinds.js';
import { EnvironmentsUnavailable, heldPlaces, type Outage } from '../../episode/outage-clock.js';
import { environmentOf, isOfStack } from '../../spec/environments/environment-schema.js';
import type { EnvironmentIdentities } from '../../spec/records/evaluation-records.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { Task } from '../../spec/records/task.js';
import { canonicalBytes } from '../../store/records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';

export interface Asking {
  /** The environments with their current addresses. */
  environments: readonly EnvironmentSpec[];
  tasks: readonly Task[];
  /** In seconds. `callTimeoutS`: for one call; `maxWaitS`: for a server that is down. */
  callTimeoutS: number;
  maxWaitS: number;
  signal: AbortSignal;
  /** Called repeatedly during a wait for an environment. */
  onWait: (envKey: string, outage: Outage) => void;
  /** Called when an environment has answered. */
  onAnswer?: (envKey: string) => void;
}

const minPauseMs = 100;
const maxPauseMs = 2000;
/** At most this many tasks are used to question a server. */
const tasksAsked = 3;

/** Asks each environment in `names` for its identity. Throws `EnvironmentsUnavailable` if an environment does not answer in time. */
export async function askIdentities(
  names: readonly string[],
  asking: Asking,
): Promise<EnvironmentIdentities> {
  const asked = await Promise.all(
    [...new Set(names)].sort().map(async (name) => {
      const environment = environmentOf(asking.environments, name);
      return [name, identityOf(await factsOf(name, asking), environment)] as const;
    }),
  );
  return Object.fromEntries(asked);
}

/**
 * sha256 of the canonical JSON of `facts`. If the facts do not distinguish the server from others, its address `url` is included. It is
 * also included for a server that has given no reward yet, because that server may never give one.
 */
function identityOf(facts: EnvironmentFacts, environment: EnvironmentSpec | undefined): Digest {
  const { contract, tools, name, version, reward_rule } = facts;
  const { url, reward, success_at, no_call } = environment ?? {};
  const isVague = tools === null || reward_rule === null || reward_rule === 'later_reward';
  const address = isVague && url !== undefined ? { url } : {};
  const graded = {
    ...(reward === undefined ? {} : { reward }),
    ...(success_at === undefined ? {} : { success_at }),
    ...(no_call === undefined ? {} : { no_call }),
  };
  const metadata = { name, version };
  return sha256Hex(canonicalBytes({ contract, tools, metadata, reward_rule, ...address, ...graded }));
}

/** A node's own server is not asked: another process may not be able to reach it. */
const ofOwnServer: EnvironmentFacts = {
  ...{ contract: 'openenv/tools', tools: null, name: null, version: null, reward_rule: 'grade' },
};

async function factsOf(name: string, asking: Asking): Promise<EnvironmentFacts> {
  const environment = environmentOf(asking.environments, name);
  if (environment === undefined || isOfStack(environment)) return ofOwnServer;
  const own = asking.tasks.filter(({ env_key }) => env_key === name);
  // Held-out tasks first, because only they occur in suites.
  const tasks = [
    ...own.filter(({ split }) => split === 'held_out'),
    ...own.filter(({ split }) => split === 'train'),
  ].slice(0, tasksAsked);
  const { signal } = asking;
  const timeoutMs = asking.callTimeoutS * 1000;
  const giveUpAt = awakeNow() + asking.maxWaitS * 1000;
  for (let pauseMs = minPauseMs; ; pauseMs = Math.min(maxPauseMs, 2 * pauseMs)) {
    try {
      const facts = await environmentKind(environment).facts(environment, tasks, { timeoutMs, signal });
      asking.onAnswer?.(name);
      return facts;
    } catch (error) {
      asking.signal.throwIfAborted();
      if (!(error instanceof EnvironmentError)) throw error;
      if (error.kind === 'failed') throw unplayable(name, error);
      if (awakeNow() + pauseMs > giveUpAt) throw unavailable(name, asking, error);
      asking.onWait(name, { reason: error.message, until: Date.now() + giveUpAt - awakeNow() });
      await sleep(pauseMs, undefined, { signal: asking.signal }).catch(() => asking.signal.throwIfAborted());
    }
  }
}

function unavailable(name: string, { maxWaitS }: Asking, cause: EnvironmentError): EnvironmentsUnavailable {
  const message = `The environment server of ${name} did not list its tools within ${maxWaitS} s (${cause.message}). Make sure that it answers, then resume the run`;
  return heldPlaces(name, maxWaitS, cause) ?? new EnvironmentsUnavailable(message, { cause });
}

/** Waiting does not help: a person must correct the address, the key or the server. */
function unplayable(name: string, cause: EnvironmentError): EnvironmentsUnavailable {
  return new EnvironmentsUnavailable(
    `The environment server of ${name} cannot be played on: ${cause.message}. Correct it, then resume the run`,
    { cause },
  );
}

/**
 * The identities, as asked by the node before it plays a suite. Cached tools are dropped, so the node then plays with the server's current
 * tools.
 */
export async function identitiesOnNode(
  deps: Pick<NodeDeps, 'backendFor'>,
  { record, tasks }: RunData,
  environments: readonly EnvironmentSpec[],
  names: readonly string[],
): Promise<EnvironmentIdentities> {
  const { signal, progress } = currentScope();
  const { call_timeout_s: callTimeoutS, max_wait_s: maxWaitS } = record.spec.generator;
  const servers = environments
    .filter((environment) => !isOfStack(environment))
    .map((environment) => ({ environment, backend: deps.backendFor(environment, callTimeoutS * 1000) }));
  // The node must not wait for places that its own idle sessions hold.
  const releaseIdle = () => Promise.all(servers.map(async ({ backend }) => backend.releaseIdle?.()));
  const waits = new OpenWaits();
  // No episode has begun yet.
  const report = (): void => progress({ ...waits.longest, waiting_episodes: 0 });
  const onWait = (envKey: string, outage: Outage): void => {
    waits.goesOn(envKey, { for: envKey, ...outage });
    report();
    void releaseIdle();
  };
  const onAnswer = (envKey: string): void => {
    if (waits.ends(envKey)) report();
  };
  await releaseIdle();
  const identities = await askIdentities(names, {
    ...{ environments, tasks, callTimeoutS, maxWaitS, signal, onWait, onAnswer },
  });
  for (const { environment, backend } of servers) backend.forgetTools?.(environment.env_key);
  return identities;
}
