// The kind `fleet`: what a spec says of Fleet, and what can be known before the first episode.
import { randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { keepSecret } from '../../base/known-secrets.js';
import { sha256Hex } from '../../base/sha256.js';
import { RecentlyUsed } from '../../base/recently-used.js';
import { usualTtlSeconds } from '../../spec/environments/environment-schema.js';
import type { EnvironmentReason } from '../../spec/records/episode.js';
import type { Task, ToolSpec } from '../../spec/records/task.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import { type EnvironmentBackend, EnvironmentError } from '../environment.js';
import type { EnvironmentFacts, EnvironmentKind, Refusal } from '../environment-kind.js';
import { createSemaphore } from '../semaphore.js';
import { createFleetBackend } from './fleet-backend.js';
import { fleetRequests, fleetUrl } from './fleet-request.js';
import { Orchestrator } from './orchestrator.js';

const verifiersKept = 1024;
/** Number of instances that are made at the same time to ask for tools. */
const askedAtOnce = 8;
/** The start of a run ends after 15 minutes. */
const opensWithinMs = 10 * 60_000;

export const fleetKind: EnvironmentKind = {
  backend(spec, callTimeoutMs, { owner, verifierCode, log = () => undefined, placesOf }) {
    if (!verifierCode) throw new Error(`environment ${spec.env_key}: this process has no verifiers`);
    const { url = fleetUrl, region, ttl_s: ttlSeconds = usualTtlSeconds, max_sessions } = spec;
    const apiKey = keyOf(spec);
    // Also for an existing backend, because a later run may allow fewer.
    const places = placesOf(url, max_sessions);
    const codes = new RecentlyUsed<string>(verifiersKept);
    const settings = [url, spec.api_key_env ?? null, region ?? null, ttlSeconds, callTimeoutMs];
    const key = JSON.stringify(['fleet', ...settings]);
    // A backend deletes what its owner left, so two backends of one process must not have the same owner.
    const part = sha256Hex(key).slice(0, 8);
    return {
      key,
      create: () =>
        createFleetBackend({
          ...{ url, apiKey, ttlSeconds, callTimeoutMs, places },
          ...(region === undefined ? {} : { region }),
          owner: {
            name: `${owner ? ownerIn(owner) : randomUUID()}.${part}`,
            ...(owner ? { folder: join(owner.folder, part) } : {}),
            log,
          },
          verifierCode: (sha256) => codes.get(sha256, () => verifierCode(sha256)),
        }),
    };
  },
  refusal,
  opensWithinMs,
  tools,
  facts,
};

/** Nodes of different stacks may have the same name and the same Fleet account. */
function ownerIn({ name, folder }: { name: string; folder: string }): string {
  const path = join(folder, 'owner.txt');
  const id = randomUUID().slice(0, 8);
  const whole = `${path}.${id}`;
  mkdirSync(folder, { recursive: true });
  // Written aside first: a process that is killed must not leave an empty name.
  writeFileSync(whole, id);
  try {
    linkSync(whole, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    unlinkSync(whole);
  }
  return `${name}.${readFileSync(path, 'utf8')}`;
}

const variableOf = ({ api_key_env = 'FLEET_API_KEY' }: EnvironmentSpec): string => api_key_env;

/** Throws if the variable is not set here, or holds what no header can carry. */
function keyOf(spec: EnvironmentSpec): string {
  const key = process.env[variableOf(spec)]?.trim();
  keepSecret(key);
  const problem = keyProblem(key);
  if (key !== undefined && problem === null) return key;
  throw new Error(
    `environment ${spec.env_key} takes the key of Fleet from ${variableOf(spec)}, but this variable ${problem} here: export it`,
  );
}

function keyProblem(key = ''): string | null {
  if (key === '') return 'is not set';
  return /^[\x21-\x7e]+$/u.test(key) ? null : 'holds spaces, line ends or other characters that no key has';
}

function orchestratorOf(spec: EnvironmentSpec): Orchestrator {
  return new Orchestrator(fleetRequests(spec.url ?? fleetUrl, keyOf(spec)));
}

async function refusal(
  spec: EnvironmentSpec,
  tasks: readonly Task[],
  signal: AbortSignal,
): Promise<Refusal | null> {
  const own = taskRefusal(tasks);
  if (own) return own;
  const variable = variableOf(spec);
  const problem = keyProblem(process.env[variable]?.trim());
  if (problem !== null)
    return {
      problem: `the key of Fleet is expected in ${variable}, and this variable ${problem}`,
      fix: 'export it where `longhaul up` and the workers are started',
    };
  try {
    return await serviceRefusal(spec, orchestratorOf(spec), tasks, signal);
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof EnvironmentError)) throw error;
    // Episodes wait for a service that does not answer.
    if (error.kind === 'unavailable') return null;
    const fixes: Partial<Record<EnvironmentReason, string>> = {
      unauthorized: `put a valid key into ${variable}`,
      forbidden: 'ask Fleet for access, or use the key of a team that has it',
    };
    return {
      problem: error.message,
      fix: fixes[error.reason] ?? 'correct the url: the key is not the cause',
    };
  }
}

function taskRefusal(tasks: readonly Task[]): Refusal | null {
  const without = tasks.filter(({ verifier }) => verifier === undefined);
  if (without[0])
    return {
      problem: `${without.length} of ${tasks.length} tasks have no verifier, for example ${without[0].task_key}: nothing can grade them`,
      fix: 'add verifier_func to these rows, or leave the tasks out',
    };
  const seeing = tasks.filter(({ modality }) => modality === 'computer_use');
  if (seeing[0])
    return {
      problem: `${seeing.length} of ${tasks.length} tasks are for computer use, for example ${seeing[0].task_key}, and models here do not see`,
      fix: 'set data.modality: tool_use',
    };
  return null;
}

async function serviceRefusal(
  { region, env_key }: EnvironmentSpec,
  orchestrator: Orchestrator,
  tasks: readonly Task[],
  signal: AbortSignal,
): Promise<Refusal | null> {
  const { limit } = await orchestrator.account(signal);
  if (limit < 1)
    return {
      problem: `the Fleet account of this key may run ${limit} instances`,
      fix: 'ask Fleet for a higher instance limit, or use another key',
    };
  const regions = region === undefined ? [] : await orchestrator.regions(signal);
  if (region !== undefined && !regions.includes(region))
    return { problem: `Fleet has no region "${region}"`, fix: `its regions: ${regions.join(', ')}` };
  const wanted = new Map<string, Set<string>>();
  if (env_key !== '*') wanted.set(env_key, new Set());
  for (const task of tasks) {
    const versions = wanted.get(task.env_key) ?? new Set();
    if (task.env_version !== undefined) versions.add(task.env_version);
    wanted.set(task.env_key, versions);
  }
  for (const [name, versions] of wanted) {
    const known = await orchestrator.environment(name, signal);
    if (known === null)
      return {
        problem: `Fleet has no environment "${name}"`,
        fix: 'correct env_key of its tasks, or leave them out',
      };
    const gone = [...versions].find((version) => !known.versions.includes(version));
    if (gone !== undefined && known.versions.length > 0)
      return {
        problem: `Fleet’s environment "${name}" has no version ${gone}`,
        fix: `its versions: ${known.versions.join(', ')}`,
      };
  }
  return null;
}

async function tools(
  spec: EnvironmentSpec,
  task: Task,
  { signal }: { signal: AbortSignal },
): Promise<ToolSpec[]> {
  const host = {
    url: null,
    placesOf: () => createSemaphore(askedAtOnce),
    // Nothing is graded.
    verifierCode: () => Promise.resolve(''),
  };
  const { key, create } = fleetKind.backend(spec, 60_000, host);
  const backend = asking.get(key) ?? create();
  asking.set(key, backend);
  const episodeId = `tools/${task.task_key}`;
  const opening = asked.get(episodeId) ?? 0;
  const environment = await backend.open(task, { seed: 0, episodeId, tryNumber: 0, opening }, signal);
  asked.set(episodeId, opening + 1);
  await environment.close();
  return [...environment.tools];
}

/** Backends are kept for the next try, which can then take the instance of a request that was not answered. */
const asking = new Map<string, EnvironmentBackend>();
const asked = new Map<string, number>();

/** The environment's version decides, because instances of one version are equal. Asking for tools would take an instance. */
async function facts(
  spec: EnvironmentSpec,
  tasks: readonly Task[],
  { signal }: { signal: AbortSignal },
): Promise<EnvironmentFacts> {
  const versions = new Set<string>();
  const orchestrator = orchestratorOf(spec);
  for (const task of tasks) {
    const { env_key, env_version } = task;
    versions.add(env_version ?? (await orchestrator.environment(env_key, signal))?.default ?? '');
  }
  return {
    ...{ contract: 'fleet', tools: null, name: 'fleet', reward_rule: 'grade' },
    version: [...versions].sort().join(' '),
  };
}

/** What the account is, for people. Throws `EnvironmentError`. */
export async function fleetState(spec: EnvironmentSpec, signal: AbortSignal): Promise<string> {
  const { limit, running } = await orchestratorOf(spec).account(signal);
  const most = Number.isFinite(limit) ? `, at most ${limit}` : '';
  return `Fleet accepts the key; ${running} instances run${most}`;
}
