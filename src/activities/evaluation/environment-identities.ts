// Which environment an evaluation was played on. Results of two servers are never compared as one: the identity is in the suite's record,
// and so in its digest. It is asked for each time a suite is made: the server may have changed by then.
import { setTimeout as sleep } from 'node:timers/promises';
import type { NodeDeps } from '../node-deps.js';
import type { RunData } from '../../data/run-data.js';
import { currentScope } from '../attempt/scope.js';
import { appByName, appNames, appsVersion } from '../../environments/apps/registry.js';
import { awakeNow } from '../../base/awake-clock.js';
import { EnvironmentError } from '../../environments/environment.js';
import { askServerFacts, inOrder, type ServerFacts } from '../../environments/openenv/server-facts.js';
import { EnvironmentsUnavailable } from '../../episode/episode-loop.js';
import type { EnvironmentIdentities } from '../../spec/records/evaluation-records.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { Task } from '../../spec/records/task.js';
import { canonicalBytes } from '../../store/records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';

export interface Asking {
  /** Where the environments are now. */
  environments: readonly EnvironmentSpec[];
  tasks: readonly Task[];
  /** Seconds of a call, and of the wait for a server that is down. */
  callTimeoutS: number;
  maxWaitS: number;
  signal: AbortSignal;
  /** Called repeatedly while one is waited for. */
  onWait: (envKey: string, reason: string) => void;
}

const minPauseMs = 100;
const maxPauseMs = 2000;
/** Tasks that a server may be asked about. */
const tasksAsked = 3;

/** Asks the environments `names` for their identities. Throws `EnvironmentsUnavailable` if one does not answer in time. */
export async function askIdentities(
  names: readonly string[],
  asking: Asking,
): Promise<EnvironmentIdentities> {
  const asked = await Promise.all(
    [...new Set(names)].sort().map(async (name) => {
      const url = asking.environments.find(({ env_key }) => env_key === name)?.url;
      return [name, identityOf(await factsOf(name, asking), url)] as const;
    }),
  );
  return Object.fromEntries(asked);
}

/**
 * sha256 of the canonical JSON. The server's address, `url`, counts if its answer does not distinguish it from another server: a server
 * that has given no reward yet may never give one.
 */
export function identityOf(facts: ServerFacts, url: string | undefined): Digest {
  const { contract, tools, name, version, reward_rule } = facts;
  const isVague = tools === null || reward_rule === null || reward_rule === 'later_reward';
  const address = isVague && url !== undefined ? { url } : {};
  return sha256Hex(canonicalBytes({ contract, tools, metadata: { name, version }, reward_rule, ...address }));
}

async function factsOf(name: string, asking: Asking): Promise<ServerFacts> {
  const environment = asking.environments.find(({ env_key }) => env_key === name);
  if (environment?.url === undefined) return builtInFacts(name);
  const { url, grading_token_env } = environment;
  const own = asking.tasks.filter(({ env_key }) => env_key === name);
  // Suites hold held-out tasks only.
  const tasks = [
    ...own.filter(({ split }) => split === 'held_out'),
    ...own.filter(({ split }) => split === 'train'),
  ].slice(0, tasksAsked);
  const timeoutMs = asking.callTimeoutS * 1000;
  const options = { url, gradesByToken: grading_token_env !== undefined, timeoutMs };
  const giveUpAt = awakeNow() + asking.maxWaitS * 1000;
  for (let pauseMs = minPauseMs; ; pauseMs = Math.min(maxPauseMs, 2 * pauseMs)) {
    try {
      return await askServerFacts(options, tasks, asking.signal);
    } catch (error) {
      asking.signal.throwIfAborted();
      if (!(error instanceof EnvironmentError)) throw error;
      if (awakeNow() + pauseMs > giveUpAt) throw unavailable(name, asking, error);
      asking.onWait(name, error.message);
      await sleep(pauseMs, undefined, { signal: asking.signal }).catch(() => asking.signal.throwIfAborted());
    }
  }
}

function unavailable(name: string, { maxWaitS }: Asking, cause: EnvironmentError): EnvironmentsUnavailable {
  return new EnvironmentsUnavailable(
    `The environment of ${name} has not said for ${maxWaitS} s which tools it has (${cause.message}). Start it again, then resume the run`,
    { cause },
  );
}

/** A node's own server is ours, and this process may not reach it. */
function builtInFacts(name: string): ServerFacts {
  const tools = appNames.includes(name) ? inOrder(appByName(name).tools) : null;
  return { contract: 'openenv/tools', tools, name: 'longhaul', version: appsVersion, reward_rule: 'grade' };
}

/** The identities as a node asks before it plays a suite; from then on it plays with the server's current tools. */
export async function identitiesOnNode(
  deps: Pick<NodeDeps, 'backendFor'>,
  { record, tasks }: RunData,
  environments: readonly EnvironmentSpec[],
  names: readonly string[],
): Promise<EnvironmentIdentities> {
  const { signal, progress } = currentScope();
  const { call_timeout_s: callTimeoutS, max_wait_s: maxWaitS } = record.spec.generator;
  const onWait = (envKey: string, reason: string): void =>
    progress({ waiting: envKey, waiting_reason: reason });
  const identities = await askIdentities(names, {
    ...{ environments, tasks, callTimeoutS, maxWaitS, signal, onWait },
  });
  for (const environment of environments)
    if (environment.url !== undefined)
      deps.backendFor(environment, callTimeoutS * 1000).forgetTools?.(environment.env_key);
  return identities;
}
