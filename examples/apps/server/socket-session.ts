// One WebSocket of `/ws` (frames) or `/mcp` (bare JSON-RPC): reads messages and answers them in order. Invariant: nothing that a client
// sends can end the process; a message that breaks the framing ends only its own socket.
import type { RawData, WebSocket } from 'ws';
import { isObject } from './json-object.js';
import { RepeatedKeyError } from './answered-requests.js';
import { ForbiddenError, InjectedFault } from './episode-protocol.js';
import { errorFrame, observationFrame, type ErrorCode, type ValidationProblem } from './frames.js';
import { answerRpc, parseError, rpcError, type RpcContext } from './json-rpc.js';
import { CapacityError, type Session, type SessionHolder } from './sessions.js';
import {
  checkAction,
  checkFrame,
  checkGrade,
  checkReset,
  type Checked,
  type JsonObject,
} from './validation.js';

export interface SocketContext extends RpcContext {
  sessionTimeoutMs: number;
  onRequest(): void;
  /** Reports a bug in an app to the operator; the client gets EXECUTION_ERROR. */
  onDefect(error: unknown): void;
}

/** Close code of a socket that ended without a close frame: the network failed, or the client died. */
const abnormalClosure = 1006;

class InvalidFrame extends Error {
  constructor(readonly problems: ValidationProblem[]) {
    super('Invalid message');
  }
}

/** The session that a socket requests. */
export type WantedSession =
  { kind: 'socket' } | { kind: 'resumable'; id: string } | { kind: 'attach'; id: string; takeOver: boolean };

/** Serves `/ws` on an open socket until it closes. */
export function serveFrames(context: SocketContext, socket: WebSocket, wanted: WantedSession): void {
  const opened = openSession(context, socket, wanted);
  if (!opened) return;
  const { session, holder } = opened;
  let silent = false;
  socket.on('message', (data, isBinary) => {
    // After a `hang`, no request is answered, as if the server were stuck. A socket whose session another socket took over gets no answers
    // either.
    if (silent || session.holder !== holder) return;
    context.onRequest();
    session.lastUsed = performance.now();
    const frame = isBinary ? undefined : parse(data);
    if (frame === undefined) {
      if (isBinary) return endWithError(socket, session, 'binary frames are not accepted; send JSON text');
      return socket.send(errorFrame('INVALID_JSON', 'Invalid JSON: the frame is not a JSON text'));
    }
    if (!isObject(frame.value))
      return endWithError(socket, session, 'a frame must be a JSON object with a "type"');
    try {
      const reply = answerFrame(context, session, frame.value);
      if (reply === undefined) closeSocket(socket, session);
      else socket.send(reply);
    } catch (error) {
      const reply = replyToError(context, error);
      if (reply.kind === 'hang') silent = true;
      else if (reply.kind === 'drop') {
        // A `drop` imitates the death of the server, which no session survives.
        context.sessions.end(session);
        socket.terminate();
      } else socket.send(reply.text);
    }
  });
}

/** Serves bare JSON-RPC. */
export function serveRpc(context: SocketContext, socket: WebSocket): void {
  const opened = openSession(context, socket, { kind: 'socket' });
  if (!opened) return;
  const { session } = opened;
  let silent = false;
  socket.on('message', (data) => {
    if (silent || session.ended) return;
    context.onRequest();
    session.lastUsed = performance.now();
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
  wanted: WantedSession,
): { session: Session; holder: SessionHolder } | undefined {
  const { sessions } = context;
  // `ws` reports frames here that are too large or not UTF-8, and closes the socket itself.
  socket.on('error', () => undefined);
  try {
    const holder: SessionHolder = {
      expired: () =>
        refuse(socket, `the session was not used for ${context.sessionTimeoutMs / 1000} s and has ended`),
      replaced: () => socket.terminate(),
    };
    const session =
      wanted.kind === 'attach'
        ? sessions.attach(wanted.id, holder, wanted.takeOver)
        : sessions.create(wanted.kind, holder, wanted.kind === 'resumable' ? wanted.id : undefined);
    socket.on('close', (code) => sessions.detach(session, holder, code !== abnormalClosure));
    return { session, holder };
  } catch (error) {
    const full = error instanceof CapacityError;
    const detail = full ? { active_sessions: error.active, max_sessions: error.limit } : {};
    const code: ErrorCode = full ? 'CAPACITY_REACHED' : 'SESSION_ERROR';
    socket.send(errorFrame(code, error instanceof Error ? error.message : String(error), detail));
    socket.close(1000);
    return undefined;
  }
}

/** The reply; undefined if the socket must be closed without one. */
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

/** The socket cannot continue. Its session ends too if no other socket could continue it. */
function endWithError(socket: WebSocket, session: Session, message: string): void {
  socket.send(errorFrame('SESSION_ERROR', message));
  closeSocket(socket, session);
}

/** A resumable session also ends, even if the client vanishes before it receives the answer. */
function closeSocket(socket: WebSocket, session: Session): void {
  if (session.kind === 'resumable') session.closing = true;
  socket.close(1000);
}

function refuse(socket: WebSocket, message: string): void {
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
