// Facts that distinguish a server from another one that plays the same tasks. They are read in a separate session, which ends after the
// answers.
import { isObject, parseServerJson } from '../../base/json.js';
import type { Task } from '../../spec/records/task.js';
import { EnvironmentError } from '../environment.js';
import type { EnvironmentFacts } from '../environment-kind.js';
import { ErrorFrame, type ReplyFrame } from './openenv-connection.js';
import { type ContractKind, OpenEnvServer, type ServerOptions, type Transport } from './openenv-server.js';
import { isReward, leftOutTools, readTools } from '../tool-results.js';
import { inOrder } from '../tool-schema.js';

export interface ServerFacts extends EnvironmentFacts {
  contract: 'openenv/tools' | 'openenv/gym';
  transport: Transport;
  /** The parts of the server's list that `tools` leaves out, in words. */
  left_out?: readonly string[];
}

interface FactsOptions extends ServerOptions {
  /** True if episodes are graded with a token: then we test whether the server knows the `grade` frame. */
  gradesByToken: boolean;
  /** Tried if it is known: some processes do not have it. */
  gradingToken?: string;
  timeoutMs: number;
  /** If the server is full, facts that need a session may be missing: tools and reward rule are then null. */
  fullIsEnough?: boolean;
}

export function nameOfContract(kind: ContractKind): ServerFacts['contract'] {
  return kind === 'gym' ? 'openenv/gym' : 'openenv/tools';
}

/** How many tasks are tried: one task that the server does not know says nothing about the others. */
const maxTasks = 3;

/** `tasks`: all of one environment. Throws an `EnvironmentError`: `unavailable` while the server does not answer, `failed` if nobody can play on it. */
export async function askServerFacts(
  options: FactsOptions,
  tasks: readonly Task[],
  signal: AbortSignal,
): Promise<ServerFacts> {
  const server = new OpenEnvServer(options);
  const said = await metadata(server, options, signal);
  let facts: Omit<ServerFacts, 'name' | 'version'> = {
    ...{ contract: 'openenv/tools', transport: 'ws', tools: null, reward_rule: null },
  };
  for (const task of tasks.slice(0, maxTasks)) {
    const asked = await askInSession(server, options, task, signal).catch((error: unknown) => {
      const isFull = error instanceof EnvironmentError && error.reason === 'capacity';
      if (isFull && options.fullIsEnough) return null;
      throw error;
    });
    if (asked === null) break;
    facts = asked;
    if (facts.reward_rule !== null && facts.tools !== null) break;
  }
  return { ...said, ...facts };
}

async function metadata(
  server: OpenEnvServer,
  { timeoutMs }: FactsOptions,
  signal: AbortSignal,
): Promise<Pick<ServerFacts, 'name' | 'version'>> {
  const { status, text } = await server.get('/metadata', timeoutMs, signal);
  const said = status < 300 ? parsed(text) : {};
  return { name: textIn(said.name), version: textIn(said.version) };
}

async function askInSession(
  server: OpenEnvServer,
  { url, gradesByToken, gradingToken, timeoutMs }: FactsOptions,
  { task_key, env_key, env_variables, reset }: Task,
  signal: AbortSignal,
): Promise<Omit<ServerFacts, 'name' | 'version'>> {
  const socket = await server.connect(timeoutMs, signal);
  const abort = (): void => socket.terminate();
  signal.addEventListener('abort', abort, { once: true });
  const ask = (frame: Record<string, unknown>): Promise<ReplyFrame | ErrorFrame> =>
    socket.request(frame, timeoutMs).catch((error: unknown) => {
      signal.throwIfAborted();
      // CAPACITY_REACHED and SESSION_ERROR mean that the server is full or ends sessions: the server is asked again later.
      if (error instanceof ErrorFrame && !['CAPACITY_REACHED', 'SESSION_ERROR'].includes(error.code))
        return error;
      if (error instanceof EnvironmentError) throw error;
      throw new EnvironmentError('unavailable', 'capacity', `${url}: ${reasonOf(error)}`, { cause: error });
    });
  try {
    const episode_id = `facts/${task_key}`;
    const { kind, act } = await server.contract(timeoutMs);
    const contract = nameOfContract(kind);
    const transport = server.transport ?? 'ws';
    // The server has only one world, and a reset would end the episode that plays there.
    if (transport === 'http') return { contract, transport, tools: act ? [act] : null, reward_rule: null };
    const tried = socket.sessionId === undefined ? {} : { try: 0 };
    const data = { task_key, env_key, env_variables, ...reset, seed: 0, episode_id, ...tried };
    const opened = await ask({ type: 'reset', data });
    if (opened instanceof ErrorFrame) return { contract, transport, tools: null, reward_rule: null };
    const { reward } = opened.data;
    const byReward = isReward(reward) ? 'reward' : 'later_reward';
    if (act) return { contract, transport, tools: [act], reward_rule: byReward };
    const listed = await ask({ type: 'step', data: { type: 'list_tools' } });
    const { observation } = listed instanceof ErrorFrame ? { observation: null } : listed.data;
    const named = isObject(observation) ? observation.tools : undefined;
    const tools = readTools(named);
    const left_out = leftOutTools(named);
    const reward_rule =
      gradesByToken && (await knowsGradeFrame(url, gradingToken ?? '', ask)) ? 'grade' : byReward;
    return {
      ...{ contract, transport, tools: tools.length > 0 ? inOrder(tools) : null, reward_rule },
      ...(left_out.length === 0 ? {} : { left_out }),
    };
  } finally {
    signal.removeEventListener('abort', abort);
    // Sends a close frame, so that the server keeps no place for this session.
    socket.close();
  }
}

/** The server knows the frame unless it answers that the type is unknown. Throws if it refuses `token`, which is empty if it is not known. */
async function knowsGradeFrame(
  url: string,
  token: string,
  ask: (frame: Record<string, unknown>) => Promise<ReplyFrame | ErrorFrame>,
): Promise<boolean> {
  const answer = await ask({ type: 'grade', data: { token, final_answer: '', try: 0 } });
  if (!(answer instanceof ErrorFrame)) return true;
  if (token !== '' && answer.code === 'FORBIDDEN')
    throw new EnvironmentError('failed', 'grade', `${url} refuses the grading token: ${answer.message}`);
  return answer.code !== 'UNKNOWN_TYPE';
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value = parseServerJson(text);
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
