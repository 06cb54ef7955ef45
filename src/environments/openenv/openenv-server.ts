// Finds out about an OpenEnv server: its transport, its contract, and whether it is up. In all versions of OpenEnv an answer has observation,
// reward and done; versions differ in how a session is reached and in what an action is.
import { isObject, parseServerJson, writeJson } from '../../base/json.js';
import { type HttpAnswer, httpRequest, NoAnswer } from '../../base/http-request.js';
import { withoutSecrets } from '../../base/secrets.js';
import type { ToolSpec } from '../../spec/records/task.js';
import { EnvironmentError } from '../environment.js';
import { AttachedSession } from './attached-session.js';
import { HttpConnection, unauthorized } from './http-connection.js';
import type { SessionNotes } from '../environment-kind.js';
import { askMcp } from './mcp-request.js';
import { ErrorFrame, type OpenEnvConnection } from './openenv-connection.js';
import { OpenEnvSocket } from './openenv-socket.js';
import { readToolPages } from '../tool-results.js';
import { parametersIn } from '../tool-schema.js';

/** `mcp`: actions list and call tools. `gym`: the environment has one kind of action, which the model gives as the arguments of `act`. */
export type ContractKind = 'mcp' | 'gym';
/** `ws`: a socket is a session. `http`: the server has one world. */
export type Transport = 'ws' | 'http';

export interface Contract {
  kind: ContractKind;
  /** The one tool of a `gym` server. */
  act?: ToolSpec;
}

export interface ServerOptions {
  /** `http://host:port` */
  url: string;
  /** Absent: found out by asking the server. */
  contract?: ContractKind;
  /** Absent: `ws` if the server has it, else `http`. */
  transport?: Transport;
  /** Headers of each request; their values are secrets. */
  headers?: Readonly<Record<string, string>>;
  /** Name of the variable that holds the headers. */
  headersEnv?: string;
  /** `attached`: an episode's session outlives its socket (`attached-session.ts`). Absent: `socket`. */
  sessions?: 'socket' | 'attached';
  /** Removes the headers' values from messages, which go into transcripts, outcomes and failures: the server might repeat them there. */
  secrets?: readonly string[];
}

/** The error for a server on which nobody can play; waiting would not help. */
const noContract = 'contract';
const probeTimeoutMs = 2000;
/** An id that no server uses for a session. */
const noSession = 'longhaul-asks-whether-sessions-can-be-attached';
const connectTimeoutMs = 10_000;

export class OpenEnvServer {
  #transport: Transport | null;
  #contract: Promise<Contract> | null = null;
  #isAttachable = false;

  constructor(private readonly options: ServerOptions) {
    this.#transport = options.transport ?? null;
  }

  get url(): string {
    return this.options.url;
  }

  /** Null before the first connection, unless it was given. */
  get transport(): Transport | null {
    return this.#transport;
  }

  /** Throws `EnvironmentError`: `unavailable` if the server may answer later, `failed` with reason `contract` if nobody can play on it. */
  async connect(timeoutMs: number, signal: AbortSignal, session?: string): Promise<OpenEnvConnection> {
    return this.#censored(await this.#connected(Math.min(timeoutMs, connectTimeoutMs), signal, session));
  }

  /** Same, for a session that outlives its socket. */
  async connectAttached(
    made: SessionNotes,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<OpenEnvConnection> {
    const limitMs = Math.min(timeoutMs, connectTimeoutMs);
    await this.#requireAttachable(limitMs, signal);
    const { headers = {} } = this.options;
    const server = { ...this.options, headers, made, censor: this.#censor };
    return AttachedSession.make(server, limitMs, signal);
  }

  #censored(connection: OpenEnvConnection): OpenEnvConnection {
    connection.censor = this.#censor;
    return connection;
  }

  get #censor(): (text: string) => string {
    const { headers = {}, secrets = [] } = this.options;
    const known = [...secrets, ...secretsOf(headers)];
    return known.length > 0 ? (text) => withoutSecrets(text, known) : (text) => text;
  }

  async #connected(timeoutMs: number, signal: AbortSignal, session?: string): Promise<OpenEnvConnection> {
    const { url, headers } = this.options;
    if (this.#transport === 'http') return new HttpConnection(url, headers);
    try {
      const named = session === undefined ? {} : { resume: session };
      const socket = await OpenEnvSocket.connect(this.options, timeoutMs, signal, named);
      this.#transport = 'ws';
      return socket;
    } catch (error) {
      const status = handshakeStatus(error);
      // FastAPI answers 403 if no route accepts the socket.
      if (status === 401) throw unauthorized(url, status);
      if (this.#transport === 'ws' || status === null || status >= 500 || status === 429) throw error;
      // The environment's routes accept only POST, so any answer but 404 shows that the route exists.
      if ((await this.get('/step', timeoutMs, signal)).status === 404)
        throw new EnvironmentError(
          'failed',
          noContract,
          `${url} is no OpenEnv server: it has neither /ws nor /step`,
        );
      this.#transport = 'http';
      return new HttpConnection(url, headers);
    }
  }

  /** Tests for OpenEnv 0.5 or later, which refuses to attach to a session that does not exist; earlier versions create another session. */
  async #requireAttachable(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.#isAttachable) return;
    const { url } = this.options;
    const attach = { attach: noSession };
    const socket = await OpenEnvSocket.connect(this.options, timeoutMs, signal, attach).catch(
      (error: unknown) => {
        const status = handshakeStatus(error);
        if (status === 401) throw unauthorized(url, status);
        if (status !== 403 && status !== 404) throw error;
        throw new EnvironmentError(
          'failed',
          noContract,
          `${url} has no /ws, which sessions: attached needs: remove sessions from the environment`,
        );
      },
    );
    const refused = await socket.request({ type: 'state' }, timeoutMs).catch((error: unknown) => error);
    socket.close();
    const isRefusal = refused instanceof ErrorFrame;
    if (!isRefusal && refused instanceof Error) throw refused;
    if (isRefusal && refused.code === 'CAPACITY_REACHED')
      throw new EnvironmentError('unavailable', 'capacity', `${url} is full`, { cause: refused });
    if (!isRefusal || refused.code !== 'SESSION_ERROR')
      throw new EnvironmentError(
        'failed',
        noContract,
        `${url} keeps no session without its socket, as OpenEnv does since 0.5: remove sessions from the environment`,
      );
    this.#isAttachable = true;
    this.#transport = 'ws';
  }

  /** Finds out transport and contract, without an episode. Throws what `connect` throws. */
  async look(timeoutMs: number, signal: AbortSignal): Promise<{ contract: Contract; transport: Transport }> {
    if (this.options.sessions === 'attached') await this.#requireAttachable(timeoutMs, signal);
    const connection = await this.connect(timeoutMs, signal);
    const contract = await this.contract(timeoutMs).finally(() => connection.close());
    return { contract, transport: this.#transport ?? 'ws' };
  }

  /** The server is asked once, and again after a failure. Callers share the request, so no caller's signal ends it. */
  contract(timeoutMs: number): Promise<Contract> {
    const asked = (this.#contract ??= this.#ask(timeoutMs, new AbortController().signal));
    asked.catch(() => {
      if (this.#contract === asked) this.#contract = null;
    });
    return asked;
  }

  async #ask(timeoutMs: number, signal: AbortSignal): Promise<Contract> {
    const { url, contract } = this.options;
    if (contract === 'mcp') return { kind: 'mcp' };
    const schema = await this.#actionSchema(timeoutMs, signal);
    if (contract === 'gym') return { kind: 'gym', act: actTool(schema ?? {}) };
    if (schema !== null) return isMcp(schema) ? { kind: 'mcp' } : { kind: 'gym', act: actTool(schema) };
    if (this.#transport !== 'http') return { kind: 'mcp' };
    throw new EnvironmentError(
      'failed',
      noContract,
      `${url} has no /schema, which says what its actions are: if it is an OpenEnv server, set environments[].contract to mcp or gym`,
    );
  }

  /** JSON Schema of an action; null if the server has no `/schema`. */
  async #actionSchema(timeoutMs: number, signal: AbortSignal): Promise<Record<string, unknown> | null> {
    const answer = await this.get('/schema', timeoutMs, signal);
    if (answer.status === 401 || answer.status === 403) throw unauthorized(this.url, answer.status);
    if (answer.status >= 500 || answer.status === 429)
      throw new EnvironmentError('unavailable', 'connect', `${this.url}/schema answers ${answer.status}`);
    if (this.options.contract === undefined && this.#transport === 'http' && isPage(answer.text))
      throw new EnvironmentError(
        'failed',
        noContract,
        `${this.url} is no OpenEnv server: its /schema is a web page; check host and port`,
      );
    if (answer.status >= 400) return null;
    try {
      const schema = parseServerJson(answer.text);
      return isObject(schema) && isObject(schema.action) ? schema.action : null;
    } catch (error) {
      throw new EnvironmentError(
        'failed',
        noContract,
        `${this.url}/schema says what the server's actions are, and what it answers is not JSON: ${answer.text.slice(0, 100)}: ` +
          'correct it, let it answer 404, or set environments[].contract: mcp if the server lists tools',
        { cause: error },
      );
    }
  }

  /**
   * The tools that `POST /mcp` lists, in no episode; none if the server has no such list. Throws `EnvironmentError` `unavailable` if only its
   * beginning can be read.
   */
  async toolsWithoutEpisode(timeoutMs: number): Promise<ToolSpec[]> {
    const { url, headers = {} } = this.options;
    return readToolPages(async (params, listed) => {
      const answer = await askMcp(this.options, headers, 'tools/list', params, timeoutMs).catch(() => null);
      if (answer && 'result' in answer) return answer.result;
      if (!('cursor' in params)) return {};
      const words = `${url}/mcp lists its first ${listed} tools, and does not answer with more`;
      throw new EnvironmentError('unavailable', 'connect', words);
    });
  }

  /** Makes the next episode ask again, because another server may have the address now. The transport is kept: it belongs to the deployment. */
  forget(): void {
    this.#contract = null;
    this.#isAttachable = false;
  }

  async isUp(signal?: AbortSignal): Promise<boolean> {
    try {
      const { status } = await this.get('/health', probeTimeoutMs, signal);
      return status < 300 || (this.#transport === 'http' && status < 500);
    } catch {
      return false;
    }
  }

  /** Throws `EnvironmentError` `unavailable` if no answer comes. Redirects could take the headers to another host. */
  async get(path: string, timeoutMs: number, signal?: AbortSignal): Promise<HttpAnswer> {
    const { url, headers = {} } = this.options;
    const redirect = this.options.headers ? 'error' : 'follow';
    try {
      return await httpRequest(`${url.replace(/\/+$/, '')}${path}`, { headers, redirect, timeoutMs, signal });
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      const words = `${url} does not answer: ${error.message}`;
      throw new EnvironmentError('unavailable', 'connect', words, { cause: error });
    }
  }
}

/** HTTP status with which the server refused the WebSocket handshake; null if it did not answer. */
function handshakeStatus(error: unknown): number | null {
  const { message = '' } = ((error as Error).cause ?? {}) as { message?: string };
  const match = /Unexpected server response: (\d+)/.exec(message);
  return match ? Number(match[1]) : null;
}

/** The secrets in the headers. In `Bearer …` only the part after `Bearer` is one, so that it is found if a server repeats it alone. */
function secretsOf(headers: Readonly<Record<string, string>>): string[] {
  return Object.entries(headers)
    .filter(([name]) => /auth|key|token|secret|cookie|password/i.test(name))
    .flatMap(([, value]) => [...new Set([value, value.split(' ').at(-1) ?? value])]);
}

function isPage(text: string): boolean {
  return /^\s*<(!doctype html|html)\b/i.test(text);
}

const mcpActions = ['Action', 'CallToolAction', 'ListToolsAction'];

/** The name of a type; a union type has no title. */
function isMcp(schema: Record<string, unknown>): boolean {
  return mcpActions.includes(String(schema.title)) || writeJson(schema).includes('"call_tool"');
}

/** The action's fields without `metadata`, which is for programs. */
function actTool(schema: Record<string, unknown>): ToolSpec {
  const { title, description, properties, ...rest } = parametersIn(schema);
  const { metadata: _, ...own } = properties;
  return {
    name: 'act',
    description:
      typeof description === 'string' ? description : `Takes an action${title ? ` (${String(title)})` : ''}.`,
    input_schema: { ...rest, properties: own },
  };
}
