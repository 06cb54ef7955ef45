// One request to a server's `POST /mcp`, which speaks JSON-RPC 2.0.
import { isObject, writeJson } from '../../base/json.js';
import { awakeLimit } from '../../base/awake-clock.js';
import { parseServerJson } from './server-json.js';
import { textOf } from '../tool-results.js';

export type McpAnswer =
  { result: Record<string, unknown> } | { code: number; message: string; data: Record<string, unknown> };

/** Rejects if the server does not answer as OpenEnv does. */
export async function askMcp(
  { url }: { url: string },
  headers: Readonly<Record<string, string>>,
  method: string,
  params: Record<string, unknown>,
  timeoutMs: number,
): Promise<McpAnswer> {
  const limit = awakeLimit(timeoutMs);
  try {
    const answer = await fetch(`${url.replace(/\/+$/, '')}/mcp`, {
      // A redirect could take the headers to another host.
      ...{ redirect: 'error', method: 'POST', signal: limit.signal },
      headers: { ...headers, 'Content-Type': 'application/json' },
      body: writeJson({ jsonrpc: '2.0', id: 1, method, params }),
    });
    const reply = answer.ok ? parseServerJson(await answer.text()) : null;
    if (isObject(reply) && isObject(reply.result)) return { result: reply.result };
    if (!isObject(reply) || !isObject(reply.error)) throw new Error(`/mcp answers ${answer.status}`);
    const { code, message, data } = reply.error;
    return { code: Number(code), message: textOf(message, 'no message'), data: isObject(data) ? data : {} };
  } finally {
    limit.callOff();
  }
}
