// The tools that demonstrations show as available. They are requested from each environment when a run starts, and stored with the run's
// data, so that a batch depends only on records.
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeLimit } from '../base/awake-clock.js';
import { EnvironmentError } from '../environments/environment.js';
import { environmentKind } from '../environments/environment-kinds.js';
import { environmentOf, isOfStack } from '../spec/environments/environment-schema.js';
import { fixOfUnlisted } from '../spec/environments/environment-problems.js';
import { InvalidSpec, type SpecProblem } from '../spec/invalid-spec.js';
import type { EnvironmentSpec } from '../spec/run-spec.js';
import type { Demonstration, Task, ToolSpec } from '../spec/records/task.js';

/** A task may be broken, so that its server cannot open it. */
const triedTasks = 5;
const minPauseMs = 100;
const maxPauseMs = 2000;

type ToolLists = Record<string, readonly ToolSpec[]>;

interface ToolListsOptions {
  /** Aborts when the start must end; the function then throws the signal's reason. */
  signal?: AbortSignal;
  /** How long to retry servers that are not up yet, in milliseconds. */
  withinMs?: number;
}

/** Returns the tools by `env_key` of the demonstrations. Throws `InvalidSpec`, which names each environment that cannot be asked. */
export async function toolListsFor(
  demonstrations: readonly Demonstration[],
  tasks: readonly Task[],
  environments: readonly EnvironmentSpec[],
  options: ToolListsOptions = {},
): Promise<ToolLists> {
  const names = [...new Set(demonstrations.flatMap(({ env_key }) => env_key ?? []))];
  return toolListsOf(names, tasks, environments, options);
}

/** The same for these environments. */
export async function toolListsOf(
  envKeys: readonly string[],
  tasks: readonly Task[],
  environments: readonly EnvironmentSpec[],
  options: ToolListsOptions = {},
): Promise<ToolLists> {
  const names = [...envKeys].sort();
  const lists: ToolLists = {};
  const problems: SpecProblem[] = [];
  // Asks all servers in parallel, so that several servers that are down take no longer than one.
  const asked = names.map(async (name) => {
    const environment = environmentOf(environments, name);
    const index = environment ? environments.indexOf(environment) : -1;
    return { name, index, answer: await toolsOf(name, environment, tasks, options) };
  });
  for (const { name, index, answer } of await Promise.all(asked)) {
    if (Array.isArray(answer)) lists[name] = answer;
    else problems.push({ path: index < 0 ? 'environments' : `environments[${index}]`, ...answer });
  }
  if (problems.length > 0) throw new InvalidSpec(problems);
  return lists;
}

async function toolsOf(
  name: string,
  environment: EnvironmentSpec | undefined,
  tasks: readonly Task[],
  options: ToolListsOptions,
): Promise<ToolSpec[] | Omit<SpecProblem, 'path'>> {
  if (!environment) {
    return {
      problem: `demonstrations name the environment "${name}", which is not listed`,
      fix: fixOfUnlisted(name),
    };
  }
  if (isOfStack(environment)) {
    return {
      problem: `demonstrations name the environment "${name}", which has no url`,
      fix: 'give its url, so that the tool list can be fetched',
    };
  }
  const own = tasks.filter(({ env_key }) => env_key === name).slice(0, triedTasks);
  if (own.length === 0) {
    return {
      problem: `demonstrations name the environment "${name}", but no task does, and a server lists its tools only in an episode of a task`,
      fix: `add a task with env_key: ${name}`,
    };
  }
  let answer: Awaited<ReturnType<typeof askServer>> = [];
  for (const task of own) {
    answer = await askServer(environment, task, options);
    if (Array.isArray(answer)) break;
  }
  return answer;
}

async function askServer(
  environment: EnvironmentSpec,
  task: Task,
  { signal, withinMs }: ToolListsOptions,
): Promise<ToolSpec[] | Omit<SpecProblem, 'path'>> {
  const kind = environmentKind(environment);
  const timeoutMs = withinMs ?? kind.opensWithinMs;
  const late = awakeLimit(timeoutMs);
  const stop = signal ? AbortSignal.any([signal, late.signal]) : late.signal;
  const server = environment.url ?? 'Fleet';
  let reason = `${server} did not answer within ${timeoutMs / 1000} s`;
  let isFull = false;
  for (let pauseMs = minPauseMs; !stop.aborted; pauseMs = Math.min(maxPauseMs, 2 * pauseMs)) {
    try {
      return await kind.tools(environment, task, { timeoutMs, signal: stop });
    } catch (error) {
      // Keep the earlier failure: it says more than the deadline's error.
      if (stop.aborted) break;
      reason = (error as Error).message;
      isFull = error instanceof EnvironmentError && error.reason === 'capacity';
      if (!(error instanceof EnvironmentError) || error.kind !== 'unavailable') break;
    }
    await sleep(pauseMs, undefined, { signal: stop }).catch(() => undefined);
  }
  signal?.throwIfAborted();
  return {
    problem: `the tools of the environment "${task.env_key}" cannot be listed: ${reason}`,
    fix:
      environment.kind === 'fleet'
        ? 'see what Fleet says of the key and the environment: `longhaul doctor --spec`'
        : isFull
          ? 'close the clients that hold its places, restart it, or give it more places (max_concurrent_envs)'
          : 'start the server, or correct the url',
  };
}
