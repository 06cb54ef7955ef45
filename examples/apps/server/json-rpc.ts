// JSON-RPC 2.0 as OpenEnv uses it on `/mcp`: without `initialize`, with errors in answers of status 200, and with separate sessions.
import { isObject } from './json-object.js';
import { RepeatedKeyError } from './answered-requests.js';
import type { EpisodeProtocol } from './episode-protocol.js';
import type { Catalog } from './catalog.js';
import { mcpToolList, textResult } from './frames.js';
import { CapacityError, type Session, type SessionTable } from './sessions.js';
import { maxKeyLength } from './validation.js';

export const parseError = -32700;
const invalidRequest = -32600;
const methodNotFound = -32601;
const invalidParams = -32602;
const internalError = -32603;
const serverError = -32000;

type RpcAnswer = Record<string, unknown>;
type RpcId = string | number | null;

export interface RpcContext {
  catalog: Catalog;
  sessions: SessionTable;
  protocol: EpisodeProtocol;
}

export function rpcError(code: number, message: string, id: RpcId = null, data: unknown = null): RpcAnswer {
  return { jsonrpc: '2.0', id, error: { code, message, data } };
}

/** Answers one request. `own`: session of the socket that sent it. Throws only `InjectedFault`. */
export function answerRpc(context: RpcContext, request: unknown, own?: Session): RpcAnswer {
  if (!isObject(request)) return rpcError(invalidRequest, 'Invalid request: it must be a JSON object');
  const { id = null, params = {}, method } = request;
  const extra = Object.keys(request).find((key) => !['jsonrpc', 'method', 'params', 'id'].includes(key));
  const problem =
    request.jsonrpc !== '2.0'
      ? "jsonrpc must be '2.0'"
      : typeof method !== 'string'
        ? 'method must be a string'
        : !isObject(params)
          ? 'params must be an object'
          : id !== null && typeof id !== 'string' && !Number.isSafeInteger(id)
            ? 'id must be a string or an integer'
            : extra !== undefined
              ? `the key ${JSON.stringify(extra)} is not allowed`
              : undefined;
  if (problem) return rpcError(invalidRequest, `Invalid request: ${problem}`);
  const answer = dispatch(context, method as string, params as Record<string, unknown>, own);
  return { jsonrpc: '2.0', id, ...answer };
}

type Answer = { result: unknown } | { error: { code: number; message: string; data: unknown } };

function failure(code: number, message: string, data: unknown = null): Answer {
  return { error: { code, message, data } };
}

function dispatch(
  context: RpcContext,
  method: string,
  params: Record<string, unknown>,
  own: Session | undefined,
): Answer {
  switch (method) {
    case 'openenv/session/create':
      return createSession(context, own);
    case 'openenv/session/close':
      return closeSession(context, params, own);
    case 'tools/list':
    case 'tools/call':
      return withSession(context, params, own, (session) =>
        method === 'tools/list' ? listTools(context, session) : callTool(context, params, session),
      );
    default:
      return failure(methodNotFound, `Method not found: ${method}`);
  }
}

function createSession({ sessions }: RpcContext, own: Session | undefined): Answer {
  if (own) return { result: { session_id: own.id } };
  return inNewSession(sessions, ({ id }) => ({ result: { session_id: id } }));
}

/** Runs with a new session, which is kept afterwards. */
function inNewSession(sessions: SessionTable, run: (session: Session) => Answer): Answer {
  let session: Session;
  try {
    session = sessions.create('http');
  } catch (error) {
    if (!(error instanceof CapacityError)) throw error;
    return failure(serverError, error.message, { active_sessions: error.active, max_sessions: error.limit });
  }
  return run(session);
}

function closeSession(
  { sessions }: RpcContext,
  params: Record<string, unknown>,
  own: Session | undefined,
): Answer {
  const id = params.session_id;
  if (typeof id !== 'string' || id === '') {
    return failure(invalidParams, "Invalid params - 'session_id' is required");
  }
  if (own?.id === id) {
    return failure(invalidRequest, 'Cannot close active WebSocket-managed session via MCP method');
  }
  const session = sessions.get(id);
  if (!session) return failure(invalidParams, `Unknown session_id: ${id}`);
  if (session.holder) {
    session.closing = true;
    return { result: { session_id: id, closed: false, closing: true } };
  }
  sessions.end(session);
  return { result: { session_id: id, closed: true } };
}

/** Runs with the socket's session, with the session that the request names, or with a temporary one. */
function withSession(
  { sessions }: RpcContext,
  params: Record<string, unknown>,
  own: Session | undefined,
  run: (session: Session) => Answer,
): Answer {
  if (own) return run(own);
  if (params.session_id) {
    const id = typeof params.session_id === 'string' ? params.session_id : JSON.stringify(params.session_id);
    const session = sessions.get(id);
    if (!session) return failure(invalidParams, `Unknown session_id: ${id}`);
    session.lastUsed = performance.now();
    return run(session);
  }
  return inNewSession(sessions, (temporary) => {
    try {
      return run(temporary);
    } finally {
      sessions.end(temporary);
    }
  });
}

function listTools({ catalog }: RpcContext, session: Session): Answer {
  return { result: { tools: mcpToolList(session.episode?.selected.app.tools ?? catalog.tools) } };
}

function callTool({ protocol }: RpcContext, params: Record<string, unknown>, session: Session): Answer {
  const { name, arguments: args = {} } = params;
  if (typeof name !== 'string' || name === '') return failure(invalidParams, "Missing 'name' in params");
  if (!isObject(args)) return failure(invalidParams, "'arguments' must be an object");
  const { idempotency_key: idempotencyKey } = params;
  if (!isKey(idempotencyKey)) {
    return failure(invalidParams, `'idempotency_key' must be a string of at most ${maxKeyLength} characters`);
  }
  try {
    const { text, error } = protocol.call(session, name, args, { turn: undefined, try: 0, idempotencyKey });
    return error === undefined ? { result: textResult(text ?? '') } : failure(internalError, error);
  } catch (error) {
    if (error instanceof RepeatedKeyError) return failure(invalidParams, error.message);
    throw error;
  }
}

function isKey(value: unknown): value is string | undefined {
  return value === undefined || (typeof value === 'string' && value.length <= maxKeyLength);
}
