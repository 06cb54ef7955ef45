// Plays episodes on an OpenEnv server over plain `/ws`, which every version of OpenEnv has. Sockets are pooled: the socket of a closed
// episode serves the next one after a `reset`. A lost socket ends its episode, unless the server keeps the session for another socket
// (`openenv-socket.ts`), in this process or the next (`attach`).
import { Backoff } from '../../base/backoff.js';
import { setMaxListeners } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { withoutSecrets } from '../../base/secrets.js';
import type { Task, ToolCall, ToolSpec } from '../../spec/records/task.js';
import { awakeLimit, awakeNow } from '../../base/awake-clock.js';
import {
  EnvironmentError,
  type Environment,
  type EnvironmentBackend,
  type Grade,
  type OpenOptions,
  type SessionReference,
  type ToolResult,
} from '../environment.js';
import { createCircuitBreaker } from './circuit-breaker.js';
import { ErrorFrame, OpenEnvSocket, type ReplyFrame } from './openenv-socket.js';
import { createSemaphore, type Semaphore } from './semaphore.js';
import { createSocketPool } from './socket-pool.js';
import { isObject, readToolAnswer, readTools, textOf } from './tool-results.js';

export interface OpenEnvOptions {
  /** `http://host:port` */
  url: string;
  /** Token of the built-in server, which grades on request. Without a token, the last observation's reward is the grade. */
  gradingToken?: string;
  /** Sessions at once; at most as many as the server allows. A semaphore if several backends share the server. */
  maxSessions: number | Semaphore;
  /** Time limit for each reply; must be longer than the server's own limit for a tool (30 s in the Python package). */
  callTimeoutMs?: number;
  /** Share of faults that the built-in server injects, 0..1; needs the token. */
  faultRate?: number;
  toolErrorRate?: number;
}

const probeTimeoutMs = 2000;
/** The mean and the variance over a group must be finite numbers too. */
const maxReward = 1e100;

type Phase = 'open' | 'call' | 'grade';

export function createOpenEnvBackend(options: OpenEnvOptions): EnvironmentBackend {
  const { url, gradingToken, callTimeoutMs = 60_000 } = options;
  const { maxSessions } = options;
  const places = typeof maxSessions === 'number' ? createSemaphore(maxSessions) : maxSessions;
  const pool = createSocketPool();
  const toolLists = new Map<string, Promise<ToolSpec[]>>();
  const breaker = createCircuitBreaker({ probe: (signal) => probe(url, signal) });
  let closed = false;
  let gradesFrames = gradingToken !== undefined;

  /** Sends a frame; if that fails, throws an `EnvironmentError` for this phase. */
  async function request(
    socket: OpenEnvSocket,
    frame: Record<string, unknown>,
    phase: Phase,
    { key, wasIdle = false }: { key?: string; wasIdle?: boolean } = {},
  ): Promise<ReplyFrame> {
    try {
      const reply = await socket.request(frame, callTimeoutMs, key);
      breaker.succeeded();
      return reply;
    } catch (error) {
      throw socket.endedByUs ? error : await judge(error, phase, wasIdle);
    }
  }

  async function judge(error: unknown, phase: Phase, wasIdle: boolean): Promise<unknown> {
    if (error instanceof ErrorFrame) {
      if (error.code === 'CAPACITY_REACHED') return unavailable('capacity', error);
      if (error.code === 'SESSION_ERROR') return unavailable('socket_lost', error);
      breaker.succeeded();
      return new EnvironmentError('failed', phase, `${url}: ${phase} failed: ${error.message}`, {
        cause: error,
      });
    }
    if (!(error instanceof EnvironmentError) || error.kind !== 'unavailable') return error;
    // The server answers other requests, so it is healthy, and this call's time-out is charged to the episode.
    if (error.reason === 'timeout' && (await probe(url))) {
      return new EnvironmentError('failed', 'timeout', error.message, { cause: error });
    }
    // An earlier restart may have ended an idle socket, so its loss says nothing about the server now.
    if (!wasIdle || error.reason !== 'socket_lost') breaker.lost();
    return error;
  }

  function unavailable(reason: string, error: Error): EnvironmentError {
    return new EnvironmentError('unavailable', reason, `${url}: ${error.message}`, { cause: error });
  }

  function resetFrame(task: Task, { seed, episodeId, tryNumber }: OpenOptions): Record<string, unknown> {
    const faults =
      gradingToken === undefined
        ? {}
        : {
            token: gradingToken,
            ...(options.faultRate === undefined ? {} : { fault_rate: options.faultRate }),
            ...(options.toolErrorRate === undefined ? {} : { tool_error_rate: options.toolErrorRate }),
          };
    const { task_key, env_key, env_variables } = task;
    const data = { task_key, env_key, env_variables, seed, episode_id: episodeId, try: tryNumber, ...faults };
    return { type: 'reset', data };
  }

  /** Opens the task's world on a socket; returns the socket, the reply, and the world's name on its server. */
  async function start(
    frame: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<{ socket: OpenEnvSocket; reply: ReplyFrame; world: string }> {
    const giveUpAt = awakeNow() + callTimeoutMs;
    const pauses = new Backoff([50, 2000]);
    for (;;) {
      const pooled = pool.take();
      const socket = pooled ?? (await connect(signal));
      const world = socket.newKey();
      try {
        const wasIdle = pooled !== undefined;
        const opening = request(socket, frame, 'open', { key: world, wasIdle });
        return { socket, reply: await untilAborted(socket, signal, opening), world };
      } catch (error) {
        const { kind, reason } = error instanceof EnvironmentError ? error : { kind: '', reason: '' };
        const lost = kind === 'unavailable' && reason === 'socket_lost';
        // An idle socket may have been lost unnoticed; the episode has not begun, so another socket may be tried.
        if (pooled && lost && !signal.aborted) continue;
        if (kind === 'failed' && reason !== 'timeout') pool.give(socket);
        else socket.terminate();
        const full = kind === 'unavailable' && reason === 'capacity';
        // A dropped socket frees its place on the server only when its last call has ended.
        const pauseMs = pauses.next();
        if (!full || awakeNow() + pauseMs > giveUpAt) throw error;
        await sleep(pauseMs, signal);
      }
    }
  }

  async function connect(signal: AbortSignal, session?: string): Promise<OpenEnvSocket> {
    try {
      const socket = await OpenEnvSocket.connect(url, Math.min(callTimeoutMs, 10_000), signal, session);
      // The server knows the token and might repeat it in messages, which go into transcripts, outcomes and failures.
      if (gradingToken !== undefined) socket.censor = (text) => withoutSecrets(text, [gradingToken]);
      return socket;
    } catch (error) {
      if (error instanceof EnvironmentError) breaker.lost();
      throw error;
    }
  }

  async function listTools(socket: OpenEnvSocket): Promise<ToolSpec[]> {
    const { data } = await request(socket, { type: 'step', data: { type: 'list_tools' } }, 'open');
    const tools = readTools(isObject(data.observation) ? data.observation.tools : undefined);
    if (tools.length > 0) return tools;
    const why = isObject(data.metadata) ? ` (${JSON.stringify(data.metadata).slice(0, 300)})` : '';
    throw new EnvironmentError('failed', 'open', `${url} lists no tools${why}`);
  }

  /** Tools of an env_key, asked for once. If `asked`, the caller must reset again, because some servers count this request as a step. */
  async function toolsOf(
    envKey: string,
    socket: OpenEnvSocket,
  ): Promise<{ tools: ToolSpec[]; asked: boolean }> {
    for (;;) {
      const known = toolLists.get(envKey);
      if (!known) break;
      const tools = await known.catch(() => undefined);
      if (tools) return { tools, asked: false };
    }
    const asking = listTools(socket);
    toolLists.set(envKey, asking);
    try {
      return { tools: await asking, asked: true };
    } catch (error) {
      toolLists.delete(envKey);
      throw error;
    }
  }

  async function open(task: Task, openOptions: OpenOptions, signal: AbortSignal): Promise<Environment> {
    if (closed) throw new Error('the environment backend is closed');
    if (!breaker.allowsCalls)
      throw new EnvironmentError('unavailable', 'connect', `the environment server ${url} is down`);
    // One signal stops hundreds of episodes, so Node's warning about a leak would be wrong.
    setMaxListeners(0, signal);
    const release = await places.acquire(signal, openOptions.alone ? 'all' : 'one');
    let socket: OpenEnvSocket | undefined;
    try {
      const frame = resetFrame(task, openOptions);
      const started = await start(frame, signal);
      socket = started.socket;
      let { reply, world } = started;
      const { tools, asked } = await untilAborted(socket, signal, toolsOf(task.env_key, socket));
      if (asked) {
        world = socket.newKey();
        reply = await untilAborted(socket, signal, request(socket, frame, 'open', { key: world }));
      }
      return episode(socket, tools, world, release, reply.data.reward);
    } catch (error) {
      socket?.terminate();
      release();
      throw error;
    }
  }

  /** If anything fails, a new world is opened instead, so only the signal makes this throw. */
  async function attach(
    task: Task,
    session: SessionReference,
    calls: number,
    signal: AbortSignal,
  ): Promise<Environment | null> {
    if (closed || !breaker.allowsCalls || session.url !== url) return null;
    setMaxListeners(0, signal);
    const release = await places.acquire(signal);
    let socket: OpenEnvSocket | undefined;
    try {
      // Does not take the session over from another socket, because that socket's client is alive.
      socket = await connect(signal, session.id);
      const { data } = await untilAborted(socket, signal, request(socket, { type: 'state' }, 'open'));
      if (data.reset_key === session.world) {
        const { step_count: done } = data;
        if (done === calls || done === calls - 1) {
          const { tools } = await untilAborted(socket, signal, toolsOf(task.env_key, socket));
          return episode(socket, tools, session.world, release);
        }
        socket.close();
      } else socket.leave();
    } catch (error) {
      socket?.terminate();
      if (signal.aborted || !(error instanceof EnvironmentError)) {
        release();
        throw error;
      }
    }
    release();
    return null;
  }

  /** `reward`: the reward in the newest observation. */
  function episode(
    socket: OpenEnvSocket,
    tools: readonly ToolSpec[],
    world: string,
    release: () => void,
    reward?: unknown,
  ): Environment {
    /** The server's explanation of that reward; empty if it gives none. */
    let said = '';
    let inFlight = false;
    let over = false;
    let broken = false;

    async function exclusive<T>(run: () => Promise<T>): Promise<T> {
      if (over || broken) throw new Error('the episode has ended; it can only be closed');
      if (inFlight) throw new Error('a call of this episode is still in flight');
      inFlight = true;
      try {
        return await run();
      } catch (error) {
        broken = true;
        throw error;
      } finally {
        inFlight = false;
      }
    }

    async function callTool(call: ToolCall, turn: number, tryNumber: number): Promise<ToolResult> {
      const action = {
        type: 'call_tool',
        tool_name: call.name,
        arguments: call.arguments,
        metadata: { turn, try: tryNumber },
      };
      const key = `call-${turn}-${tryNumber}`;
      const { data } = await request(socket, { type: 'step', data: action }, 'call', { key });
      reward = data.reward;
      said = explanationIn(data);
      const answer = readToolAnswer(isObject(data.observation) ? data.observation : {});
      if (answer.kind === 'result') return answer.result;
      throw new EnvironmentError('failed', answer.reason, `${url}: ${call.name}: ${answer.message}`);
    }

    async function gradeByFrame(finalAnswer: string, tryNumber: number): Promise<Grade | undefined> {
      const data = { token: gradingToken, final_answer: finalAnswer, try: tryNumber };
      try {
        const key = `grade-${tryNumber}`;
        const reply = await request(socket, { type: 'grade', data }, 'grade', { key });
        const { value, explanation } = reply.data;
        if (typeof value === 'number') return graded(value, textOf(explanation, ''));
        throw new EnvironmentError('failed', 'grade', `${url} graded without a number`);
      } catch (error) {
        const cause = error instanceof EnvironmentError ? error.cause : undefined;
        if (!(cause instanceof ErrorFrame) || cause.code !== 'UNKNOWN_TYPE') throw error;
        gradesFrames = false;
        return undefined;
      }
    }

    function graded(value: number, explanation: string): Grade {
      if (Math.abs(value) <= maxReward) return { outcome: { status: 'graded', value }, explanation };
      throw new EnvironmentError(
        'failed',
        'grade',
        `${url} gave the reward ${value}; rewards lie between -1e100 and 1e100`,
      );
    }

    function gradeByReward(): Grade {
      if (typeof reward === 'number' || typeof reward === 'boolean') {
        return graded(Number(reward), said);
      }
      const fix =
        gradingToken === undefined
          ? 'set grading_token_env if the server grades by token'
          : 'it cannot grade';
      throw new EnvironmentError('failed', 'grade', `${url} gave no reward and no grade; ${fix}`);
    }

    const { sessionId } = socket;
    return {
      tools,
      ...(sessionId === undefined ? {} : { session: { url, id: sessionId, world } }),
      callTool: (call, { turn, tryNumber }) => exclusive(() => callTool(call, turn, tryNumber)),
      grade: ({ finalAnswer, tryNumber }) =>
        exclusive(
          async () =>
            (gradesFrames ? await gradeByFrame(finalAnswer, tryNumber) : undefined) ?? gradeByReward(),
        ),
      close() {
        if (over) return Promise.resolve();
        over = true;
        if (inFlight || closed) socket.terminate();
        else pool.give(socket);
        release();
        return Promise.resolve();
      },
    };
  }

  /** Hundreds of episodes ask at once. While the breaker is open, its own poll decides; otherwise the callers share one poll. */
  let probing: Promise<boolean> | undefined;
  function healthy(): Promise<boolean> {
    if (!breaker.allowsCalls) return Promise.resolve(false);
    probing ??= probe(url).finally(() => (probing = undefined));
    return probing;
  }

  return {
    open,
    attach,
    forgetTools: (envKey) => void toolLists.delete(envKey),
    healthy,
    async close() {
      closed = true;
      breaker.close();
      await pool.close();
    },
  };
}

/** `metadata.explanation`: in the observation, or since OpenEnv 0.4.0 also beside it. The model sees neither. */
function explanationIn({ metadata, observation }: Record<string, unknown>): string {
  const within = isObject(observation) ? observation.metadata : undefined;
  for (const place of [metadata, within]) {
    const text = isObject(place) ? place.explanation : undefined;
    if (typeof text === 'string') return text;
  }
  return '';
}

/** The promise's result. When the signal aborts first, drops the socket and throws the signal's reason. */
async function untilAborted<T>(socket: OpenEnvSocket, signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const abort = (): void => socket.terminate();
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    return await promise;
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await delay(ms, undefined, { signal });
  } catch {
    throw signal.reason;
  }
}

async function probe(url: string, signal?: AbortSignal): Promise<boolean> {
  const limit = awakeLimit(probeTimeoutMs);
  try {
    const response = await fetch(`${url.replace(/\/+$/, '')}/health`, {
      signal: signal ? AbortSignal.any([signal, limit.signal]) : limit.signal,
    });
    await response.arrayBuffer();
    return response.ok;
  } catch {
    return false;
  } finally {
    limit.callOff();
  }
}
