// A server's facts about itself, which distinguish it from another one that plays the same tasks. Read in a session of its own, which ends
// with the answer.
import type { Task, ToolSpec } from '../../spec/records/task.js';
import { awakeLimit } from '../../base/awake-clock.js';
import { EnvironmentError } from '../environment.js';
import { ErrorFrame, OpenEnvSocket, type ReplyFrame } from './openenv-socket.js';
import { isObject, readTools } from './tool-results.js';

export interface ServerFacts {
  /** How we speak to it. */
  contract: 'openenv/tools';
  /** By name; null: it opens none of the tasks, or lists no tools. */
  tools: readonly ToolSpec[] | null;
  /** From `/metadata`; null if it does not say. */
  name: string | null;
  version: string | null;
  /**
   * `grade`: the server answers a frame that asks for the grade. Otherwise the reward of the last observation is the grade: `reward` if the
   * first observation has one already, `later_reward` if not. Null: it opens none of the tasks.
   */
  reward_rule: 'grade' | 'reward' | 'later_reward' | null;
}

export interface FactsOptions {
  url: string;
  /** Whether episodes are graded by a frame with a token: then the server is probed for that frame. */
  gradesByToken: boolean;
  timeoutMs: number;
}

/** Number of tasks to try: a task that the server does not know says nothing about the others. */
const maxTasks = 3;

/** `tasks`: of one environment. Throws an `EnvironmentError` of the kind `unavailable` while the server does not answer. */
export async function askServerFacts(
  options: FactsOptions,
  tasks: readonly Task[],
  signal: AbortSignal,
): Promise<ServerFacts> {
  const said = await metadata(options, signal);
  let facts: Pick<ServerFacts, 'tools' | 'reward_rule'> = { tools: null, reward_rule: null };
  for (const task of tasks.slice(0, maxTasks)) {
    facts = await askInSession(options, task, signal);
    if (facts.reward_rule !== null && facts.tools !== null) break;
  }
  return { contract: 'openenv/tools', ...said, ...facts };
}

async function metadata(
  { url, timeoutMs }: FactsOptions,
  signal: AbortSignal,
): Promise<Pick<ServerFacts, 'name' | 'version'>> {
  let text: string;
  const limit = awakeLimit(timeoutMs);
  try {
    const answer = await fetch(`${url.replace(/\/+$/, '')}/metadata`, {
      signal: AbortSignal.any([signal, limit.signal]),
    });
    text = await answer.text();
    if (!answer.ok) return { name: null, version: null };
  } catch (error) {
    signal.throwIfAborted();
    throw new EnvironmentError('unavailable', 'connect', `${url} does not answer: ${reasonOf(error)}`, {
      cause: error,
    });
  } finally {
    limit.callOff();
  }
  const said = parsed(text);
  return { name: textIn(said.name), version: textIn(said.version) };
}

async function askInSession(
  { url, gradesByToken, timeoutMs }: FactsOptions,
  { task_key, env_key, env_variables }: Task,
  signal: AbortSignal,
): Promise<Pick<ServerFacts, 'tools' | 'reward_rule'>> {
  const socket = await OpenEnvSocket.connect(url, Math.min(timeoutMs, 10_000), signal);
  const abort = (): void => socket.terminate();
  signal.addEventListener('abort', abort, { once: true });
  const ask = (frame: Record<string, unknown>): Promise<ReplyFrame | ErrorFrame> =>
    socket.request(frame, timeoutMs).catch((error: unknown) => {
      signal.throwIfAborted();
      // A full server, or one that ends sessions, is asked again.
      if (error instanceof ErrorFrame && !['CAPACITY_REACHED', 'SESSION_ERROR'].includes(error.code))
        return error;
      if (error instanceof EnvironmentError) throw error;
      throw new EnvironmentError('unavailable', 'capacity', `${url}: ${reasonOf(error)}`, { cause: error });
    });
  try {
    const episode_id = `facts/${task_key}`;
    const data = { task_key, env_key, env_variables, seed: 0, episode_id, try: 0 };
    const opened = await ask({ type: 'reset', data });
    if (opened instanceof ErrorFrame) return { tools: null, reward_rule: null };
    const { reward } = opened.data;
    const listed = await ask({ type: 'step', data: { type: 'list_tools' } });
    const { observation } = listed instanceof ErrorFrame ? { observation: null } : listed.data;
    const tools = readTools(isObject(observation) ? observation.tools : undefined);
    const byReward = typeof reward === 'number' || typeof reward === 'boolean' ? 'reward' : 'later_reward';
    const reward_rule = gradesByToken && (await knowsGradeFrame(ask)) ? 'grade' : byReward;
    return { tools: tools.length > 0 ? inOrder(tools) : null, reward_rule };
  } finally {
    signal.removeEventListener('abort', abort);
    // In form, so that the server keeps no place for it.
    socket.close();
  }
}

/** Asks without the token, which not every process has: any answer except that the frame is unknown means that the server knows it. */
async function knowsGradeFrame(
  ask: (frame: Record<string, unknown>) => Promise<ReplyFrame | ErrorFrame>,
): Promise<boolean> {
  const answer = await ask({ type: 'grade', data: { token: '', final_answer: '', try: 0 } });
  return !(answer instanceof ErrorFrame && answer.code === 'UNKNOWN_TYPE');
}

/** By name: a server may list them in any order. */
export function inOrder(tools: readonly ToolSpec[]): ToolSpec[] {
  return [...tools].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

function textIn(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as { message?: string; cause?: { message?: string } };
  return cause?.message ?? message ?? String(error);
}
