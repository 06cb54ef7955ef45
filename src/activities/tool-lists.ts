// The tools that demonstrations show as on offer: asked of each environment when a run starts, and kept with its data, so
// that a batch stays a function of records.
import { appByName, appNames } from '../environments/apps/registry.js';
import { createOpenEnvBackend } from '../environments/openenv/openenv-backend.js';
import { InvalidSpec, type SpecProblem } from '../spec/invalid-spec.js';
import type { EnvironmentSpec } from '../spec/run-spec.js';
import type { Demonstration, Task, ToolSpec } from '../spec/task.js';

/** A server that does not answer a start in this time is down, and the start says so. */
const answerWithinMs = 30_000;

export type ToolLists = Record<string, readonly ToolSpec[]>;

/** Tools by `env_key` of the demonstrations. Throws `InvalidSpec` naming each environment that cannot be asked. */
export async function toolListsFor(
  demonstrations: readonly Demonstration[],
  tasks: readonly Task[],
  environments: readonly EnvironmentSpec[],
): Promise<ToolLists> {
  const names = new Set(demonstrations.flatMap(({ env_key }) => env_key ?? []));
  const lists: ToolLists = {};
  const problems: SpecProblem[] = [];
  for (const name of [...names].sort()) {
    const index = environments.findIndex(({ env_key }) => env_key === name);
    const answer = await toolsOf(name, environments[index], tasks);
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
): Promise<ToolSpec[] | Omit<SpecProblem, 'path'>> {
  if (!environment) {
    return {
      problem: `demonstrations name the environment "${name}", which is not listed`,
      mend: `add an entry with env_key: ${name}`,
    };
  }
  if (environment.url === undefined) {
    if (appNames.includes(name)) return [...appByName(name).tools];
    return {
      problem: `demonstrations name "${name}", which names no url and is no built-in app (${appNames.join(', ')})`,
      mend: 'give its url, so that its tools can be asked for',
    };
  }
  const task = tasks.find(({ env_key }) => env_key === name);
  if (!task) {
    return {
      problem: `demonstrations name "${name}", but no task does, and a server shows its tools only in an episode`,
      mend: `bring a task with env_key: ${name}`,
    };
  }
  return askServer(environment.url, environment.grading_token_env, task);
}

async function askServer(
  url: string,
  tokenName: string | undefined,
  task: Task,
): Promise<ToolSpec[] | Omit<SpecProblem, 'path'>> {
  const gradingToken = tokenName === undefined ? undefined : process.env[tokenName];
  const backend = createOpenEnvBackend({
    ...{ url, maxSessions: 1, callTimeoutMs: answerWithinMs },
    ...(gradingToken ? { gradingToken } : {}),
  });
  try {
    const options = { seed: 0, episodeId: `tools/${task.task_key}`, tryNumber: 0 };
    const environment = await backend.open(task, options, AbortSignal.timeout(2 * answerWithinMs));
    await environment.close();
    return [...environment.tools];
  } catch (error) {
    return {
      problem: `the tools that demonstrations of "${task.env_key}" show cannot be asked for: ${(error as Error).message}`,
      mend: 'start the server, or correct the url',
    };
  } finally {
    await backend.close();
  }
}
