// The tools of an instance: one MCP session with each of its servers for the whole episode.
//
// A call is sent once. If its answer is lost, nobody knows whether it was carried out, so the episode needs a fresh world.
import { Client, ProtocolError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeLimit, awakeNow } from '../../base/awake-clock.js';
import { Backoff } from '../../base/backoff.js';
import type { ToolCall, ToolSpec } from '../../spec/records/task.js';
import { EnvironmentError, type ToolResult } from '../environment.js';
import { readToolResult, readTools, textResult } from '../tool-results.js';

/** Where an instance has its servers. A tool belongs to the first that lists it. */
const places = ['mcp', 'api/v1/mcp'] as const;
const listWithinMs = 60_000;
/** The library's own limit counts the time in which this process was stopped. */
const unlimitedMs = 2 ** 31 - 1;
const listPauses: [number, number] = [250, 5_000];

export class McpSession {
  private constructor(
    readonly tools: readonly ToolSpec[],
    private readonly ownerOf: ReadonlyMap<string, Client>,
    private readonly clients: readonly Client[],
  ) {}

  /** Connects to the servers below `root`, which may take a while to come up. Throws `EnvironmentError` `failed`, `open` if none lists a tool. */
  static async open(root: string, apiKey: string, signal: AbortSignal): Promise<McpSession> {
    const pauses = new Backoff(listPauses);
    const giveUpAt = awakeNow() + listWithinMs;
    for (;;) {
      const listed = await Promise.all(places.map((place) => listedBy(`${root}${place}`, apiKey, signal)));
      signal.throwIfAborted();
      const found = listed.filter((one) => 'tools' in one);
      const tools = found.flatMap((one) => one.tools);
      // A server that is not there answers 404; one that is starting, something else.
      const isWhole = listed.every((one) => 'tools' in one || one.isAbsent);
      const isLate = awakeNow() > giveUpAt;
      if (tools.length > 0 && isWhole) return McpSession.#of(found);
      await Promise.all(found.map(({ client }) => client.close().catch(() => undefined)));
      if (isLate) {
        const reasons = listed.flatMap((one) => ('tools' in one ? [] : [one.reason]));
        throw new EnvironmentError(
          'failed',
          'open',
          `${root} lists no tools: ${[...new Set(reasons)].join('; ') || 'the lists are empty'}`,
        );
      }
      await sleep(pauses.next(), undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }

  static #of(found: readonly Listed[]): McpSession {
    const ownerOf = new Map<string, Client>();
    const tools: ToolSpec[] = [];
    for (const { client, tools: listed } of found)
      for (const tool of listed) {
        if (ownerOf.has(tool.name)) continue;
        ownerOf.set(tool.name, client);
        tools.push(tool);
      }
    return new McpSession(
      tools,
      ownerOf,
      found.map(({ client }) => client),
    );
  }

  /** A mistake of the model is a result. Throws `EnvironmentError` `unavailable`: `timeout`, `socket_lost`. */
  async call({ name, arguments: input }: ToolCall, timeoutMs: number): Promise<ToolResult> {
    const client = this.ownerOf.get(name);
    if (!client) return textResult(`unknown tool ${name.slice(0, 100)}`, true);
    const limit = awakeLimit(timeoutMs);
    try {
      // Not by `callTool`, which makes an error of an answer that differs from the tool's declared output.
      const params = { name, arguments: input };
      return readToolResult(
        await client.request(
          { method: 'tools/call', params },
          { signal: limit.signal, timeout: unlimitedMs },
        ),
      );
    } catch (error) {
      // An answer of the server: it did not accept the call.
      if (error instanceof ProtocolError) return textResult(error.message, true);
      const isLate = limit.signal.aborted;
      const words = isLate ? `nothing within ${timeoutMs / 1000} s` : (error as Error).message;
      const reason = isLate ? 'timeout' : 'socket_lost';
      throw new EnvironmentError('unavailable', reason, `${name}: no answer: ${words}`, { cause: error });
    } finally {
      limit.callOff();
    }
  }

  /** Never rejects. */
  async close(): Promise<void> {
    await Promise.all(this.clients.map((client) => client.close().catch(() => undefined)));
  }
}

interface Listed {
  client: Client;
  tools: ToolSpec[];
}

async function listedBy(
  url: string,
  apiKey: string,
  signal: AbortSignal,
): Promise<Listed | { reason: string; isAbsent: boolean }> {
  const client = new Client({ name: 'longhaul', version: '1' });
  let isAbsent = false;
  const transport = new StreamableHTTPClientTransport(new URL(url), {
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
      const response = await fetch(input, init);
      if (response.status === 404) isAbsent = true;
      return response;
    },
  });
  try {
    await client.connect(transport, { signal, timeout: 30_000 });
    const { tools } = await client.listTools(undefined, { signal, timeout: 30_000 });
    return { client, tools: readTools(tools) };
  } catch (error) {
    await client.close().catch(() => undefined);
    return { reason: `${url}: ${(error as Error).message}`, isAbsent };
  }
}
