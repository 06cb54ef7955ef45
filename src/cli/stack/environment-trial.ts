// `longhaul env check URL`: plays on an environment server as an episode would, and says what a run will meet there.
import { isDeepStrictEqual } from 'node:util';
import { type Environment, EnvironmentError } from '../../environments/environment.js';
import { createOpenEnvBackend, type OpenEnvOptions } from '../../environments/openenv/openenv-backend.js';
import { NoReward } from '../../environments/openenv/openenv-episode.js';
import { askServerFacts } from '../../environments/openenv/server-facts.js';
import { contentText } from '../../episode/observation.js';
import type { Task, ToolCall } from '../../spec/records/task.js';
import { check, type CheckResult } from './doctor-checks.js';
import { leftOutText } from './environment-checks.js';

const withinMs = 60_000;
const timedResets = 5;
const shownCharacters = 200;
const noSuchTool = 'no_such_tool';

export interface Trial {
  server: Omit<OpenEnvOptions, 'maxSessions' | 'callTimeoutMs'>;
  task: Task;
}

/** Plays a few short episodes of the task. Stops after a failed check without which the others cannot be tried. */
export async function tryEnvironment({ server, task }: Trial): Promise<CheckResult[]> {
  const signal = AbortSignal.timeout(withinMs);
  const backend = createOpenEnvBackend({ ...server, maxSessions: 1, callTimeoutMs: withinMs / 2 });
  let episodes = 0;
  const within = async <T>(seed: number, use: (environment: Environment) => Promise<T>): Promise<T> => {
    const options = { seed, episodeId: `check/${episodes++}`, tryNumber: 0 };
    const environment = await backend.open(task, options, signal);
    return use(environment).finally(() => environment.close());
  };
  const beginning = ({ tools, opening }: Environment) => Promise.resolve({ tools, opening });
  try {
    const contract = await check('contract', () => contractText(server, task));
    if (!contract.ok) return [contract];
    const results = [contract];
    results.push(await check('episode', async () => beginningText(await within(1, beginning))));
    if (!results.at(-1)?.ok) return results;
    results.push(
      await check('seed', async () => {
        const [one, again] = [await within(1, beginning), await within(1, beginning)];
        if (isDeepStrictEqual(one, again)) return 'two episodes of one seed begin alike';
        return 'two episodes of one seed begin differently: after a kill, an episode’s turns are sampled again';
      }),
      await check('mistake', () => within(1, mistakeText)),
      await check('grade', () => within(1, gradeText)),
      await check('reward', () => within(1, rewardText)),
      await check('latency', async () => {
        const times: number[] = [];
        for (let reset = 0; reset < timedResets; reset++) {
          const begun = performance.now();
          await within(2, () => Promise.resolve());
          times.push(performance.now() - begun);
        }
        const median = times.sort((a, b) => a - b)[Math.floor(timedResets / 2)] ?? NaN;
        return `an episode begins in ${median.toFixed(0)} ms`;
      }),
    );
    return results;
  } finally {
    await backend.close();
  }
}

async function contractText(options: Trial['server'], task: Task): Promise<string> {
  const signal = AbortSignal.timeout(withinMs);
  const asked = { ...options, gradesByToken: false, timeoutMs: withinMs / 2 };
  const { contract, transport, left_out } = await askServerFacts(asked, [task], signal);
  const how =
    transport === 'http' ? 'over POST, one episode at a time' : 'over /ws, an episode for each socket';
  const kind = contract === 'openenv/gym' ? 'actions of its own, as one tool' : 'tools';
  return [`${kind}; ${how}`, ...(left_out === undefined ? [] : [leftOutText(left_out)])].join('\n');
}

function beginningText({
  tools,
  opening,
}: {
  tools: Environment['tools'];
  opening: string | undefined;
}): string {
  const names = tools.map(
    ({ name, input_schema: { properties } }) => `${name}(${Object.keys(properties).join(', ')})`,
  );
  const shown =
    opening === undefined ? 'the reset shows the model nothing' : `it begins with: ${cut(opening)}`;
  return `${names.join(', ')}\n${shown}`;
}

function mistakeIn({ tools }: Environment): { call: ToolCall; what: string } {
  const isGym = tools.length === 1 && tools[0]?.name === 'act';
  return isGym
    ? { call: { name: 'act', arguments: {} }, what: 'an action without fields' }
    : { call: { name: noSuchTool, arguments: {} }, what: 'a call of a tool that is not there' };
}

/** A model calls what is not there, and must read so. */
async function mistakeText(environment: Environment): Promise<string> {
  const { call, what } = mistakeIn(environment);
  try {
    const { content, isError } = await environment.callTool(call, { turn: 0, tryNumber: 0 });
    const text = contentText(content);
    return isError
      ? `${what} is an error for the model: ${cut(text)}`
      : `${what} is answered with: ${cut(text)}`;
  } catch (error) {
    if (!(error instanceof EnvironmentError) || error.kind === 'unavailable') throw error;
    throw new Error(
      `${what} fails the episode, as if the server were broken: answer with an error (${error.message})`,
    );
  }
}

async function gradeText(environment: Environment): Promise<string> {
  try {
    const { outcome, explanation } = await environment.grade({ finalAnswer: '', tryNumber: 0 });
    const words = explanation === '' ? '' : ` (${cut(explanation)})`;
    return `doing nothing is graded ${outcome.value}${words}`;
  } catch (error) {
    if (!(error instanceof NoReward)) throw error;
    return (
      'doing nothing gets no reward, so its outcome is unknown: set no_call: 0 in the spec if doing nothing solves no task, ' +
      'or give a reward with the observation of the reset'
    );
  }
}

/** Rewards are often given with the observation of a call, and not before. */
async function rewardText(environment: Environment): Promise<string> {
  try {
    await environment.callTool(mistakeIn(environment).call, { turn: 0, tryNumber: 0 });
  } catch {
    return 'no call was answered, so the reward of a call is not known';
  }
  try {
    const { outcome } = await environment.grade({ finalAnswer: '', tryNumber: 0 });
    return `after the mistake the grade is ${outcome.value}`;
  } catch (error) {
    if (!(error instanceof NoReward)) throw error;
    return 'the answer to the mistake has no reward: without a later one, the outcome is unknown';
  }
}

function cut(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= shownCharacters ? line : `${line.slice(0, shownCharacters)} …`;
}
