// Refuses a run whose environments nobody can play on, when it starts: a wrong address, key or contract must not wait for the first episodes.
import { setTimeout as sleep } from 'node:timers/promises';
import { EnvironmentError } from '../environments/environment.js';
import { environmentKind } from '../environments/environment-kinds.js';
import { verifierEntry } from '../environments/fleet/verifier-entry.js';
import { OpenEnvServer, type ServerOptions } from '../environments/openenv/openenv-server.js';
import { serverOptionsOf } from '../environments/openenv/server-options.js';
import { environmentOf } from '../spec/environments/environment-schema.js';
import { InvalidSpec } from '../spec/invalid-spec.js';
import type { Digest } from '../spec/records/parts.js';
import type { Task } from '../spec/records/task.js';
import type { EnvironmentSpec } from '../spec/run-spec.js';

/** `tasks`: those that are known already. Throws `InvalidSpec`, which names each such environment. */
export async function refuseUnplayable(
  environments: readonly EnvironmentSpec[],
  signal: AbortSignal = new AbortController().signal,
  tasks: readonly Task[] = [],
  isAsked: (environment: EnvironmentSpec) => boolean = () => true,
): Promise<void> {
  const asked = environments.map(async (environment, index) => {
    if (!isAsked(environment)) return [];
    const own = tasks.filter(({ env_key }) => environmentOf(environments, env_key) === environment);
    const refusal = await environmentKind(environment).refusal(environment, own, signal);
    return refusal === null ? [] : [{ path: `environments[${index}]`, ...refusal }];
  });
  const problems = (await Promise.all(asked)).flat();
  if (problems.length > 0) throw new InvalidSpec(problems);
}

const answersWithinMs = 10_000;
const lookMs = 3_000;
const pauseMs = 500;

/** Throws `InvalidSpec`, which names each server that does not answer within 10 s, so that nobody waits minutes for this error. */
export async function refuseSilentServers(
  environments: readonly EnvironmentSpec[],
  signal: AbortSignal,
  isAsked: (environment: EnvironmentSpec) => boolean,
): Promise<void> {
  const asked = environments.map(async (environment, index) => {
    const { kind, url, headers_env } = environment;
    if (kind === 'fleet' || url === undefined || !isAsked(environment)) return [];
    // The question for the tools says that the variable is missing.
    if (headers_env !== undefined && !process.env[headers_env]) return [];
    const silence = await silenceOf({ ...serverOptionsOf(environment), url }, signal);
    if (silence === null) return [];
    const problem = `${url} does not answer within ${answersWithinMs / 1000} s: ${silence}`;
    return [{ path: `environments[${index}].url`, problem, fix: 'start the server, or correct the url' }];
  });
  const problems = (await Promise.all(asked)).flat();
  if (problems.length > 0) throw new InvalidSpec(problems, 'the dataset spec');
}

/** The last failure; null if the server answered, even with a refusal. */
async function silenceOf(server: ServerOptions, signal: AbortSignal): Promise<string | null> {
  const until = performance.now() + answersWithinMs;
  for (;;) {
    try {
      await new OpenEnvServer(server).look(lookMs, signal);
      return null;
    } catch (error) {
      signal.throwIfAborted();
      const isSilent =
        error instanceof EnvironmentError && error.kind === 'unavailable' && error.reason !== 'capacity';
      if (!isSilent) return null;
      if (performance.now() > until) return (error as Error).message;
    }
    await sleep(pauseMs, undefined, { signal });
  }
}

/** Throws `InvalidSpec` if Fleet could not run the verifier of a task there. `codes`: of verifiers, by sha256. */
export function refuseVerifiers(
  environments: readonly EnvironmentSpec[],
  tasks: readonly Task[],
  codes: ReadonlyMap<Digest, string>,
): void {
  const broken = tasks.filter(({ env_key, verifier }) => {
    const code = verifier && codes.get(verifier);
    return code !== undefined && environmentOf(environments, env_key)?.kind === 'fleet' && !canBeCalled(code);
  });
  if (!broken[0]) return;
  const problem =
    `the verifiers of ${broken.length} tasks define no function that takes (env, final_answer), ` +
    `for example that of ${broken[0].task_key}`;
  throw new InvalidSpec([
    { path: 'data.tasks', problem, fix: 'correct verifier_func of these rows, or leave them out' },
  ]);
}

function canBeCalled(code: string): boolean {
  try {
    return verifierEntry(code).required.every((name) => name === 'final_answer');
  } catch {
    return false;
  }
}
