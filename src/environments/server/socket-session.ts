// One WebSocket of `/ws` (frames) or `/mcp` (bare JSON-RPC): reads a message, answers it, in order.
// Invariant: nothing that a client sends can end the process; a message that breaks the framing ends its own socket only.
import type { RawData, WebSocket } from 'ws';
import { RepeatedKeyError } from './answered-requests.js';
import { ForbiddenError, InjectedFault } from './episode-protocol.js';
import { errorFrame, observationFrame, type ErrorCode, type ValidationProblem } from './frames.js';
import { answerRpc, parseError, rpcError, type RpcContext } from './json-rpc.js';
import { CapacityError, type Session } from './sessions.js';
import {
  checkAction,
  checkFrame,
  checkGrade,
  checkReset,
  isObject,
  type Checked,
  type JsonObject,
} from './validation.js';

export interface SocketContext extends RpcContext {
  sessionTimeoutMs: number;
  onRequest(): void;
  /** A defect of an app, for the operator; the client gets EXECUTION_ERROR. */
  onDefect(error: unknown): void;
}

class InvalidFrame extends Error {
  constructor(readonly problems: ValidationProblem[]) {
    super('Invalid message');
  }
}

/** Serves `/ws` on an open socket until it closes. `attachTo`: the session id of the query, if any. */
export function serveFrames(context: SocketContext, socket: WebSocket, attachTo: string | undefined): void {
  const session = openSession(context, socket, attachTo);
  if (!session) return;
  let silent = false;
  socket.on('message', (data, isBinary) => {
    // After a `hang` nothing is answered any more, as by a server that is stuck.
    if (silent || session.ended) return;
    context.onRequest();
    session.lastUsed = Date.now();
    const frame = isBinary ? undefined : parse(data);
    if (frame === undefined) {
      if (isBinary) return endWithError(socket, 'binary frames are not understood; send JSON text');
      return socket.send(errorFrame('INVALID_JSON', 'Invalid JSON: the frame is not a JSON text'));
    }
    if (!isObject(frame.value)) return endWithError(socket, 'a frame must be a JSON object with a "type"');
    try {
      const reply = answerFrame(context, session, frame.value);
      if (reply === undefined) socket.close(1000);
      else socket.send(reply);
    } catch (error) {
      const reply = replyToError(context, error);
      if (reply.kind === 'hang') silent = true;
      else if (reply.kind === 'drop') socket.terminate();
      else socket.send(reply.text);
    }
  });
}

/** Serves bare JSON-RPC. */
export function serveRpc(context: SocketContext, socket: WebSocket): void {
  const session = openSession(context, socket, undefined);
  if (!session) return;
  let silent = false;
  socket.on('message', (data) => {
    if (silent || session.ended) return;
    context.onRequest();
    session.lastUsed = Date.now();
    const request = parse(data);
    if (!request) return socket.send(JSON.stringify(rpcError(parseError, 'Parse error')));
    try {
      socket.send(JSON.stringify(answerRpc(context, request.value, session)));
    } catch (error) {
      const reply = replyToError(context, error);
      if (reply.kind === 'hang') silent = true;
      else if (reply.kind === 'drop') socket.terminate();
      else
        socket.send(JSON.stringify(rpcError(-32603, error instanceof Error ? error.message : String(error))));
    }
  });
}

function openSession(
  context: SocketContext,
  socket: WebSocket,
  attachTo: string | undefined,
): Session | undefined {
  const { sessions } = context;
  // `ws` reports frames that are too big or not UTF-8 here and closes the socket itself.
  socket.on('error', () => undefined);
  try {
    const session = attachTo ? sessions.attach(attachTo) : sessions.create('socket');
    socket.on('close', () => sessions.detach(session));
    session.onExpired = () =>
      endWithError(socket, `the session was not used for ${context.sessionTimeoutMs / 1000} s and has ended`);
    return session;
  } catch (error) {
    const full = error instanceof CapacityError;
    const detail = full ? { active_sessions: error.active, max_sessions: error.limit } : {};
    const code: ErrorCode = full ? 'CAPACITY_REACHED' : 'SESSION_ERROR';
    socket.send(errorFrame(code, error instanceof Error ? error.message : String(error), detail));
    socket.close(1000);
    return undefined;
  }
}

/** The reply, or undefined when the socket is to close without one. */
function answerFrame(context: SocketContext, session: Session, frame: JsonObject): string | undefined {
  const { protocol } = context;
  switch (frame.type) {
    case 'reset':
      return observationFrame(
        protocol.reset(session, valid(checkReset(valid(checkFrame(frame, 'optional'))))),
      );
    case 'step':
      return observationFrame(
        protocol.step(session, valid(checkAction(valid(checkFrame(frame, 'required'))))),
      );
    case 'state':
      valid(checkFrame(frame, 'none'));
      return JSON.stringify({ type: 'state', data: protocol.state(session) });
    case 'mcp': {
      const request = valid(checkFrame(frame, 'required'));
      return JSON.stringify({ type: 'mcp', data: answerRpc(context, request, session) });
    }
    case 'grade': {
      const grade = protocol.grade(session, valid(checkGrade(valid(checkFrame(frame, 'required')))));
      return JSON.stringify({ type: 'grade', data: grade });
    }
    case 'close':
      valid(checkFrame(frame, 'none'));
      return undefined;
    default:
      return errorFrame(
        'UNKNOWN_TYPE',
        `Unknown message type: ${typeof frame.type === 'string' ? frame.type.slice(0, 100) : ''}`,
      );
  }
}

type ErrorReply = { kind: 'frame'; text: string } | { kind: 'hang' } | { kind: 'drop' };

function replyToError(context: SocketContext, error: unknown): ErrorReply {
  const frame = (text: string): ErrorReply => ({ kind: 'frame', text });
  if (error instanceof InvalidFrame) {
    return frame(errorFrame('VALIDATION_ERROR', error.message, { errors: error.problems }));
  }
  if (error instanceof RepeatedKeyError) return frame(errorFrame('VALIDATION_ERROR', error.message));
  if (error instanceof ForbiddenError) return frame(errorFrame('FORBIDDEN', error.message));
  if (error instanceof InjectedFault) {
    if (error.fault !== 'error') return { kind: error.fault };
    return frame(errorFrame('EXECUTION_ERROR', error.message, { detail: 'injected_fault' }));
  }
  context.onDefect(error);
  return frame(errorFrame('EXECUTION_ERROR', error instanceof Error ? error.message : String(error)));
}

function endWithError(socket: WebSocket, message: string): void {
  socket.send(errorFrame('SESSION_ERROR', message));
  socket.close(1000);
}

function valid<T>(checked: Checked<T>): T {
  if (checked.ok) return checked.value;
  throw new InvalidFrame(checked.problems);
}

function parse(data: RawData): { value: unknown } | undefined {
  try {
    return { value: JSON.parse((data as Buffer).toString('utf8')) };
  } catch {
    return undefined;
  }
}
