// The tools of an instance: one MCP session with each of its servers for the whole episode.
//
// A call is sent once. If its answer is lost, nobody knows whether it was carried out, so the episode needs a fresh world.
import { markedEvents, markedJson, unmarkedJson, withMarks, withoutMarks } from './marked-numbers.js';
import { Client, ProtocolError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { ReadableStream } from 'node:stream/web';
import { abortable, pause } from '../../base/abortable.js';
import { awakeLimit, awakeNow } from '../../base/awake-clock.js';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import { Backoff } from '../../base/backoff.js';
import type { ToolCall, ToolSpec } from '../../spec/records/task.js';
import { EnvironmentError, type ToolResult } from '../environment.js';
import { readToolResult, readToolPages, textResult } from '../tool-results.js';
import { type KnownPlaces, type PlaceAnswer, places, ServerPlace } from './server-places.js';

interface OpeningLimits {
  /** The opening fails after so long. */
  listWithinMs: number;
  /** An unknown place counts as absent after it has answered 404 for so long. */
  unknownMs: number;
  /** Limit until a server has accepted the session. */
  connectMs: number;
}

const usualLimits: OpeningLimits = { listWithinMs: 60_000, unknownMs: 30_000, connectMs: 30_000 };
/** Effectively none: the library's limit would also count the time in which this process was stopped. */
const unlimitedMs = 2 ** 31 - 1;
/** Waits so long after a stream's end, because the last answer in it is read later. */
const deliveredWithinMs = 500;
/** A tool for models that can see. An instance that lists only this tool is still starting. */
const seeing = 'computer';
const listPauses: [number, number] = [250, 5_000];
/** Limit of one page of a list. */
const listMs = 30_000;
const anyResult = z.looseObject({});

export class McpSession {
  private constructor(
    readonly tools: readonly ToolSpec[],
    private readonly ownerOf: ReadonlyMap<string, Connection>,
    private readonly connections: readonly Connection[],
  ) {}

  /**
   * Connects to the servers below `root`, which may take a while to start, and notes in `known` which ones exist. Throws `EnvironmentError` `failed`,
   * `open` if none lists a tool, or if a server that is known to exist does not.
   */
  static async open(
    root: string,
    apiKey: string,
    signal: AbortSignal,
    known: KnownPlaces = new Map(),
    { listWithinMs, unknownMs, connectMs } = usualLimits,
  ): Promise<McpSession> {
    const pauses = new Backoff(listPauses);
    const giveUpAt = awakeNow() + listWithinMs;
    const servers = places.map((place) => new ServerPlace(place, known, unknownMs));
    for (;;) {
      const listed = await Promise.all(
        places.map((place) => listedBy(`${root}${place}`, apiKey, signal, connectMs)),
      );
      signal.throwIfAborted();
      const found = listed.filter((one) => 'tools' in one);
      // Every place is counted, also those after one that is not ready yet.
      for (const [index, server] of servers.entries())
        server.add(answerOf(listed[index] as Listed | Unlisted));
      const isLate = awakeNow() > giveUpAt;
      const session = McpSession.#of(found);
      if (session.tools.length > 0 && servers.every(({ isSettled }) => isSettled)) {
        for (const server of servers) server.remember();
        return session;
      }
      await Promise.all(found.map(({ connection }) => connection.close()));
      if (isLate) {
        const reasons = listed.flatMap((one) => ('tools' in one ? [] : [one.reason]));
        const words = session.tools.length > 0 ? 'does not list all its tools' : 'lists no tools';
        throw new EnvironmentError(
          'failed',
          'open',
          `${root} ${words}: ${[...new Set(reasons)].join('; ') || 'a list is empty'}`,
        );
      }
      await pause(pauses.next(), signal);
    }
  }

  static #of(found: readonly Listed[]): McpSession {
    const ownerOf = new Map<string, Connection>();
    const tools: ToolSpec[] = [];
    for (const { connection, tools: listed } of found)
      for (const tool of listed) {
        if (ownerOf.has(tool.name) || tool.name === seeing) continue;
        ownerOf.set(tool.name, connection);
        tools.push(tool);
      }
    return new McpSession(
      tools,
      ownerOf,
      found.map(({ connection }) => connection),
    );
  }

  /** A mistake of the model is a result. Throws `EnvironmentError` `unavailable`: `timeout`, `socket_lost`. */
  async call({ name, arguments: input }: ToolCall, timeoutMs: number): Promise<ToolResult> {
    const owner = this.ownerOf.get(name);
    if (!owner) return textResult(`unknown tool ${name.slice(0, 100)}`, true);
    const limit = awakeLimit(timeoutMs);
    try {
      return withoutSecrets(readToolResult(await owner.call({ name, arguments: input }, limit.signal)));
    } catch (error) {
      const message = withoutKnownSecrets((error as Error).message);
      // An answer of the server: it did not accept the call. Some report an exception of the tool so.
      if (error instanceof ProtocolError && !isOfServer(error)) return textResult(message, true);
      const isLate = limit.signal.aborted;
      const words = isLate ? `nothing within ${timeoutMs / 1000} s` : message;
      const reason = isLate ? 'timeout' : 'socket_lost';
      throw new EnvironmentError('unavailable', reason, `${name}: no answer: ${words}`, { cause: error });
    } finally {
      limit.callOff();
    }
  }

  /** Never rejects. */
  async close(): Promise<void> {
    await Promise.all(this.connections.map((connection) => connection.close()));
  }
}

/** MCP's codes in that range for mistakes in the request: the resource does not exist, or a person must answer first. */
const ofRequest = [-32_002, -32_042];

/** True for JSON-RPC's codes of errors that a server or a proxy makes, not the model, such as an unknown session. */
function isOfServer({ code }: ProtocolError): boolean {
  return code >= -32_099 && code <= -32_000 && !ofRequest.includes(code);
}

/** Without secrets, because a server may repeat the key that it was sent. */
function withoutSecrets({ content, ...rest }: ToolResult): ToolResult {
  const shown = content.map((block) =>
    block.type === 'text' ? { ...block, text: withoutKnownSecrets(block.text) } : block,
  );
  return { ...rest, content: shown };
}

interface Listed {
  connection: Connection;
  tools: ToolSpec[];
}

interface Unlisted {
  reason: string;
  isAbsent: boolean;
}

function answerOf(one: Listed | Unlisted): PlaceAnswer {
  if ('tools' in one) return one.tools.length > 0 ? 'tools' : 'empty list';
  return one.isAbsent ? 'none' : 'failure';
}

async function listedBy(
  url: string,
  apiKey: string,
  signal: AbortSignal,
  connectMs: number,
): Promise<Listed | Unlisted> {
  const connection = new Connection(url, apiKey);
  try {
    return { connection, tools: await connection.list(signal, connectMs) };
  } catch (error) {
    await connection.close();
    const reason = withoutKnownSecrets(`${url}: ${(error as Error).message}`);
    return { reason, isAbsent: connection.isAbsent };
  }
}

/** The session with one server. It takes one request at a time. */
class Connection {
  /** True if the server answered 404 before it accepted the session. */
  isAbsent = false;
  #isOpen = false;
  readonly #client = new Client({ name: 'longhaul', version: '1' });
  readonly #transport: StreamableHTTPClientTransport;
  /** Called when the stream that should contain an answer has ended. */
  #onStreamEnd = (): void => undefined;

  constructor(url: string, apiKey: string) {
    this.#transport = new StreamableHTTPClientTransport(new URL(url), {
      requestInit: { headers: { Authorization: `Bearer ${apiKey}` } },
      // A call whose stream has ended is lost.
      reconnectionOptions: {
        initialReconnectionDelay: 0,
        maxReconnectionDelay: 0,
        reconnectionDelayGrowFactor: 1,
        maxRetries: 0,
      },
      fetch: async (input, init) => {
        // The stream of the server's own messages, which nobody reads here.
        if (init?.method === 'GET') return new Response(null, { status: 405 });
        // Of this request: its stream may end after the next call was sent.
        const onEnd = this.#onStreamEnd;
        const body = typeof init?.body === 'string' ? { body: unmarkedJson(init.body) } : {};
        const response = await fetch(input, { ...init, ...body });
        if (response.status === 404) this.isAbsent = !this.#isOpen;
        return marked(response, onEnd);
      },
    });
  }

  async list(signal: AbortSignal, connectMs: number): Promise<ToolSpec[]> {
    const limit = awakeLimit(connectMs);
    try {
      // The library's own limit does not hold for the notification that ends the handshake.
      const stop = AbortSignal.any([signal, limit.signal]);
      await abortable(this.#client.connect(this.#transport, { signal: stop, timeout: unlimitedMs }), stop);
    } finally {
      limit.callOff();
    }
    this.#isOpen = true;
    if (!this.#client.getServerCapabilities()?.tools) return [];
    return readToolPages((params) => this.#ask('tools/list', params, { signal, timeout: listMs }));
  }

  /** Not by the library's own methods, whose schemas refuse a list or a result for one value, among them each marked number. */
  async #ask(
    method: 'tools/list' | 'tools/call',
    params: Record<string, unknown>,
    options: { signal: AbortSignal; timeout: number },
  ): Promise<Record<string, unknown>> {
    const result = await this.#client.request({ method, params }, anyResult, options);
    return withoutMarks(result) as Record<string, unknown>;
  }

  async call(
    params: { name: string; arguments: Record<string, unknown> },
    signal: AbortSignal,
  ): Promise<unknown> {
    const ended = new AbortController();
    // The library waits for its time limit where a stream ends without an answer.
    const lost = new Promise<never>((_, reject) => {
      this.#onStreamEnd = () =>
        setTimeout(() => {
          reject(new Error('the connection has ended'));
          ended.abort();
        }, deliveredWithinMs).unref();
    });
    lost.catch(() => undefined);
    const asked = this.#ask(
      'tools/call',
      { ...params, arguments: withMarks(params.arguments) },
      { signal: AbortSignal.any([signal, ended.signal]), timeout: unlimitedMs },
    );
    return Promise.race([asked, lost]).finally(() => (this.#onStreamEnd = () => undefined));
  }

  /** Never rejects. */
  async close(): Promise<void> {
    await this.#client.close().catch(() => undefined);
  }
}

/** The response with marked numbers. A stream of events calls `onEnd` however it ends. */
async function marked(response: Response, onEnd: () => void): Promise<Response> {
  const { body, status, statusText, headers } = response;
  const type = headers.get('content-type') ?? '';
  const head = { status, statusText, headers };
  if (body && type.includes('application/json')) return new Response(markedJson(await response.text()), head);
  if (!body || !type.includes('text/event-stream')) return response;
  async function* passedOn(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
    try {
      yield* markedEvents(stream);
    } finally {
      onEnd();
    }
  }
  return new Response(ReadableStream.from(passedOn(body as ReadableStream<Uint8Array>)), head);
}
