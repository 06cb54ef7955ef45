// Plays episodes on an OpenEnv server of any version, with its contract and its transport. Connections are pooled: after a `reset`, the next episode uses
// the connection of a closed one. A lost connection ends its episode, unless the server keeps the session for a new connection of this process
// (`openenv-socket.ts`) or of the next (`attach`).
import { isObject, numberIn, writeJson } from '../../base/json.js';
import { abortable, pause } from '../../base/abortable.js';
import { Backoff } from '../../base/backoff.js';
import { setMaxListeners } from 'node:events';
import type { EnvironmentReason } from '../../spec/records/episode.js';
import type { Task, ToolSpec } from '../../spec/records/task.js';
import {
  EnvironmentError,
  type Environment,
  type EnvironmentBackend,
  type OpenOptions,
  type SessionReference,
} from '../environment.js';
import { KnownTools } from '../tool-schema.js';
import { createCircuitBreaker } from './circuit-breaker.js';
import type { SessionNotes } from '../environment-kind.js';
import { ErrorFrame, type OpenEnvConnection, type ReplyFrame } from './openenv-connection.js';
import { openEnvEpisode } from './openenv-episode.js';
import type { RewardRule } from './observed-reward.js';
import { type Contract, OpenEnvServer, type ServerOptions } from './openenv-server.js';
import { createSemaphore, crowdText, type Semaphore } from '../semaphore.js';
import { createSocketPool } from './socket-pool.js';
import { errorText, leftOutTools, readTools } from '../tool-results.js';

export interface OpenEnvOptions extends Omit<ServerOptions, 'secrets'>, Partial<RewardRule> {
  /** Token of the example server, which grades on request. Without a token, rewards are the grade. */
  gradingToken?: string;
  /** Sessions at once; at most as many as the server allows. A semaphore if several backends share the server. */
  maxSessions: number | Semaphore;
  /** `shared`: all episodes of an `env_key` have the same tools, which are asked for once. */
  tools?: 'episode' | 'shared';
  /** Time limit for each reply; must be longer than the server's own limit for a tool (30 s in the Python package). */
  callTimeoutMs?: number;
  /** Where attached sessions are noted; without it, sessions are those of sockets. */
  made?: SessionNotes;
}

type Phase = 'open' | 'call' | 'grade';

export function createOpenEnvBackend(options: OpenEnvOptions): EnvironmentBackend {
  const { url, gradingToken, callTimeoutMs = 60_000, maxSessions, tools: scope = 'episode' } = options;
  const { reward = 'last', success_at = 1, no_call, sessions, made } = options;
  const server = new OpenEnvServer({
    ...options,
    ...(gradingToken === undefined ? {} : { secrets: [gradingToken] }),
  });
  const places = typeof maxSessions === 'number' ? createSemaphore(maxSessions) : maxSessions;
  const pool = createSocketPool();
  const toolLists = new Map<string, Promise<readonly ToolSpec[]>>();
  const knownTools = new KnownTools();
  const breaker = createCircuitBreaker({ probe: (signal) => server.isUp(signal) });
  let closed = false;
  let hasConnected = false;
  let gradesFrames = gradingToken !== undefined;

  /** Sends a frame; if that fails, throws an `EnvironmentError` for this phase. */
  async function request(
    connection: OpenEnvConnection,
    frame: Record<string, unknown>,
    phase: Phase,
    { key, wasIdle = false }: { key?: string; wasIdle?: boolean } = {},
  ): Promise<ReplyFrame> {
    try {
      const reply = await connection.request(frame, callTimeoutMs, key);
      breaker.succeeded();
      return reply;
    } catch (error) {
      throw connection.endedByUs ? error : await judge(error, phase, wasIdle);
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
    if (error.reason === 'timeout' && (await server.isUp())) {
      return new EnvironmentError('failed', 'timeout', error.message, { cause: error });
    }
    // An earlier restart may have ended an idle socket, so its loss says nothing about the server now.
    if (!wasIdle || error.reason !== 'socket_lost') breaker.lost();
    // After a restart the server may have a newer version.
    server.forget();
    return error;
  }

  function unavailable(reason: EnvironmentReason, error: Error): EnvironmentError {
    return new EnvironmentError('unavailable', reason, `${url}: ${error.message}`, { cause: error });
  }

  /** Other servers than ours may refuse keys that they do not know, so they get those of the task alone. */
  function resetFrame(
    connection: OpenEnvConnection,
    task: Task,
    { seed, episodeId, tryNumber }: OpenOptions,
  ): Record<string, unknown> {
    const trusted = gradingToken === undefined ? {} : { token: gradingToken };
    const isOurs = connection.sessionId !== undefined || gradingToken !== undefined;
    const { task_key, env_key, env_variables, reset } = task;
    const tried = isOurs ? { try: tryNumber } : {};
    const data = { task_key, env_key, env_variables, ...reset, seed, episode_id: episodeId };
    return { type: 'reset', data: { ...data, ...tried, ...trusted } };
  }

  /** Opens the task's world in a session; returns the connection, the reply, and the world's name on its server. */
  async function start(
    task: Task,
    openOptions: OpenOptions,
    signal: AbortSignal,
  ): Promise<{ connection: OpenEnvConnection; opening: ReplyFrame; world: string }> {
    for (;;) {
      const pooled = pool.take();
      const connection = pooled ?? (await connect(signal));
      const world = connection.newKey();
      try {
        const frame = resetFrame(connection, task, openOptions);
        const sent = request(connection, frame, 'open', { key: world, wasIdle: pooled !== undefined });
        return { connection, opening: await untilAborted(connection, signal, sent), world };
      } catch (error) {
        const { kind, reason } = error instanceof EnvironmentError ? error : { kind: '', reason: '' };
        const lost = kind === 'unavailable' && reason === 'socket_lost';
        // An idle socket may have been lost unnoticed; the episode has not begun, so another socket may be tried.
        if (pooled && lost && !signal.aborted) continue;
        if (kind === 'failed' && reason !== 'timeout') pool.give(connection);
        else connection.terminate();
        throw error;
      }
    }
  }

  async function connect(signal: AbortSignal, session?: string): Promise<OpenEnvConnection> {
    try {
      const isAttached = sessions === 'attached' && made !== undefined && session === undefined;
      const connection = isAttached
        ? await server.connectAttached(made, callTimeoutMs, signal)
        : await server.connect(callTimeoutMs, signal, session);
      hasConnected = true;
      shareOneWorld();
      return connection;
    } catch (error) {
      if (!(error instanceof EnvironmentError) || error.reason === 'capacity') throw error;
      // After a success, a refusal means that the server is away: its proxy answers for it, or its key has expired.
      const isAway = error.kind === 'unavailable' || hasConnected;
      if (isAway) breaker.lost();
      throw isAway && error.kind === 'failed' ? unavailable('connect', error) : error;
    }
  }

  function shareOneWorld(): void {
    if (server.transport === 'http') places.limitTo(1);
  }
  shareOneWorld();

  /** Before any episode takes a place: a server without `/ws` has only one world. */
  let finding: Promise<void> | undefined;
  function findTransport(): Promise<void> {
    finding ??= (async () => {
      pool.give(await connect(new AbortController().signal));
    })()
      // Then the episodes wait for a place.
      .catch((error: unknown) => {
        if (!isFull(error) || server.transport === null) throw error;
      })
      .finally(() => (finding = undefined));
    return finding;
  }

  async function listTools(envKey: string, connection: OpenEnvConnection): Promise<readonly ToolSpec[]> {
    const { data } = await request(connection, { type: 'step', data: { type: 'list_tools' } }, 'open');
    const listed = isObject(data.observation) ? data.observation.tools : undefined;
    const tools = readTools(listed);
    // Our own server always lists them in the order of its app.
    if (connection.sessionId !== undefined && tools.length > 0) return tools;
    if (tools.length > 0) return knownTools.listOf(envKey, tools);
    const said = errorText(isObject(data.observation) ? data.observation.error : undefined);
    const reasons = [
      ...leftOutTools(listed),
      ...(said === null ? [] : [said]),
      ...(isObject(data.metadata) ? [writeJson(data.metadata)] : []),
    ];
    const why = reasons.length === 0 ? '' : ` (${reasons.join(', ').slice(0, 300)})`;
    throw new EnvironmentError('failed', 'open', `${url} lists no tools${why}`);
  }

  /** Tools of a task. If `asked`, the caller must reset again, because some servers count this request as a step. */
  async function toolsOf(
    { act }: Contract,
    envKey: string,
    connection: OpenEnvConnection,
  ): Promise<{ tools: readonly ToolSpec[]; asked: boolean }> {
    if (act) return { tools: [act], asked: false };
    // Our own server has the same tools for all tasks of an app.
    const isShared = scope === 'shared' || connection.sessionId !== undefined;
    if (!isShared) return { tools: await listTools(envKey, connection), asked: true };
    for (;;) {
      const known = toolLists.get(envKey);
      if (!known) break;
      const tools = await known.catch(() => undefined);
      if (tools) return { tools, asked: false };
    }
    const asking = listTools(envKey, connection);
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
    if (server.transport === null) await findTransport();
    signal.throwIfAborted();
    const pauses = new Backoff([50, 2000]);
    let refusedMs = 0;
    for (;;) {
      const acquiring = places.acquire(signal, openOptions.alone ? 'all' : 'one');
      const crowd = crowdText(places.crowd, server.transport === 'http');
      if (crowd !== null) openOptions.onWait?.(crowd);
      const release = await acquiring;
      let connection: OpenEnvConnection | undefined;
      try {
        const started = await start(task, openOptions, signal);
        connection = started.connection;
        const contract = await untilAborted(connection, signal, server.contract(callTimeoutMs));
        const listed = await untilAborted(connection, signal, toolsOf(contract, task.env_key, connection));
        if (!listed.asked) return episode(task, started, contract, listed.tools, release);
        const world = connection.newKey();
        const frame = resetFrame(connection, task, openOptions);
        const sent = request(connection, frame, 'open', { key: world });
        const opening = await untilAborted(connection, signal, sent);
        return episode(task, { connection, world, opening }, contract, listed.tools, release);
      } catch (error) {
        connection?.terminate();
        release();
        // The server has fewer places than we thought, or others hold them. A dropped socket frees its place only when its last call has ended.
        if (!isFull(error)) throw error;
        const { max_sessions: most } = (error.cause as ErrorFrame).data;
        if (numberIn(most) !== null) places.shrinkTo(numberIn(most)!);
        const pauseMs = pauses.next();
        refusedMs += pauseMs;
        if (refusedMs > callTimeoutMs) throw error;
        openOptions.onWait?.(`other sessions hold its places: ${error.message}`);
        await pause(pauseMs, signal);
      }
    }
  }

  /** If anything fails, a new world is opened instead, so only the signal makes this throw. */
  async function attach(
    task: Task,
    session: SessionReference,
    calls: number,
    signal: AbortSignal,
  ): Promise<Environment | null> {
    // The rewards of earlier calls are not known here, nor what the reset has shown.
    if (closed || !breaker.allowsCalls || session.url !== url || reward === 'sum' || task.prompt === '')
      return null;
    setMaxListeners(0, signal);
    const release = await places.acquire(signal);
    let connection: OpenEnvConnection | undefined;
    try {
      // Does not take the session over from another socket, because that socket's client is alive.
      connection = await connect(signal, session.id);
      const { data } = await untilAborted(connection, signal, request(connection, { type: 'state' }, 'open'));
      if (data.reset_key === session.world) {
        const done = numberIn(data.step_count);
        if (done === calls || done === calls - 1) {
          const contract = await untilAborted(connection, signal, server.contract(callTimeoutMs));
          const { tools } = await untilAborted(
            connection,
            signal,
            toolsOf(contract, task.env_key, connection),
          );
          const began = { connection, world: session.world, opening: null };
          return episode(task, began, contract, tools, release);
        }
        connection.close();
      } else connection.leave();
    } catch (error) {
      connection?.terminate();
      if (signal.aborted || !(error instanceof EnvironmentError)) {
        release();
        throw error;
      }
    }
    release();
    return null;
  }

  function episode(
    { prompt }: Task,
    {
      connection,
      world,
      opening,
    }: { connection: OpenEnvConnection; world: string; opening: ReplyFrame | null },
    contract: Contract,
    tools: readonly ToolSpec[],
    release: () => void,
  ): Environment {
    return openEnvEpisode({
      ...{ url, connection, contract, tools, world, opening },
      hasPrompt: prompt !== '',
      rule: { reward, success_at, ...(no_call === undefined ? {} : { no_call }) },
      gradingToken: gradesFrames ? (gradingToken ?? null) : null,
      request: (frame, phase, key) => request(connection, frame, phase, { key }),
      onUngraded: () => (gradesFrames = false),
      onClose: (isIdle) => {
        if (isIdle && !closed) pool.give(connection);
        else connection.terminate();
        release();
      },
    });
  }

  /** Hundreds of episodes ask at once. While the breaker is open, its own poll decides; otherwise the callers share one poll. */
  let probing: Promise<boolean> | undefined;
  function healthy(): Promise<boolean> {
    if (!breaker.allowsCalls) return Promise.resolve(false);
    probing ??= server.isUp().finally(() => (probing = undefined));
    return probing;
  }

  return {
    open,
    attach,
    releaseIdle: () => pool.close(),
    forgetTools: (envKey) => {
      toolLists.delete(envKey);
      server.forget();
    },
    healthy,
    async close() {
      closed = true;
      breaker.close();
      await pool.close();
    },
  };
}

function isFull(error: unknown): error is EnvironmentError {
  return error instanceof EnvironmentError && error.kind === 'unavailable' && error.reason === 'capacity';
}

/** The promise's result. When the signal aborts first, drops the connection and throws the signal's reason. */
async function untilAborted<T>(
  connection: OpenEnvConnection,
  signal: AbortSignal,
  promise: Promise<T>,
): Promise<T> {
  try {
    return await abortable(promise, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
    connection.terminate();
    throw signal.reason;
  }
}
