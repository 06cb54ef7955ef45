// One request to a server's `POST /mcp`, which speaks JSON-RPC 2.0.
import { isObject, parseServerJson, writeJson } from '../../base/json.js';
import { httpRequest } from '../../base/http-request.js';
import { textOf } from '../tool-results.js';

type McpAnswer =
  { result: Record<string, unknown> } | { code: number; message: string; data: Record<string, unknown> };

/** Rejects if the server does not answer as OpenEnv does. */
export async function askMcp(
  { url }: { url: string },
  headers: Readonly<Record<string, string>>,
  method: string,
  params: Record<string, unknown>,
  timeoutMs: number,
): Promise<McpAnswer> {
  const answer = await httpRequest(`${url.replace(/\/+$/, '')}/mcp`, {
    ...{ headers, timeoutMs, body: writeJson({ jsonrpc: '2.0', id: 1, method, params }) },
  });
  const reply = answer.ok ? parseServerJson(answer.text) : null;
  if (isObject(reply) && isObject(reply.result)) return { result: reply.result };
  if (!isObject(reply) || !isObject(reply.error)) throw new Error(`/mcp answers ${answer.status}`);
  const { code, message, data } = reply.error;
  return { code: Number(code), message: textOf(message, 'no message'), data: isObject(data) ? data : {} };
}
