// The HTTP routes of OpenEnv 0.10, and two of our own below `/x/`. A stateless route gets a session for one request.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isObject } from './json-object.js';
import { appsVersion } from '../registry.js';
import { RepeatedKeyError } from './answered-requests.js';
import { splits } from './catalog.js';
import { ForbiddenError, InjectedFault } from './episode-protocol.js';
import { observationData, type Observation, type ValidationProblem } from './frames.js';
import { answerRpc, parseError, rpcError } from './json-rpc.js';
import { CapacityError, type Session } from './sessions.js';
import type { SocketContext } from './socket-session.js';
import { checkAction, checkGrade, checkReset, checkTaskQuery, type Checked } from './validation.js';

/** Largest request body, in bytes; the same limit that uvicorn has for frames. */
export const maxBodyBytes = 16 * 1024 * 1024;

class HttpError extends Error {
  constructor(
    readonly status: number,
    readonly detail: string | ValidationProblem[],
  ) {
    super(typeof detail === 'string' ? detail : 'invalid body');
  }
}

/** Answers one HTTP request. Never throws. */
export async function answerHttp(
  context: SocketContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  try {
    context.onRequest();
    const path = new URL(request.url ?? '/', 'http://localhost').pathname;
    const text = request.method === 'POST' ? await readBody(request) : '';
    send(response, 200, route(context, request.method ?? 'GET', path, text));
  } catch (error) {
    if (error instanceof InjectedFault && error.fault === 'hang') return;
    if (error instanceof InjectedFault && error.fault === 'drop') {
      request.socket.destroy();
      return;
    }
    if (error instanceof HttpError) send(response, error.status, { detail: error.detail });
    else if (error instanceof ForbiddenError) send(response, 403, { detail: error.message });
    else if (error instanceof RepeatedKeyError) send(response, 409, { detail: error.message });
    else if (error instanceof CapacityError) send(response, 503, { detail: error.message });
    else {
      if (!(error instanceof InjectedFault)) context.onDefect(error);
      send(response, 500, { detail: error instanceof Error ? error.message : String(error) });
    }
  }
}

function route(context: SocketContext, method: string, path: string, text: string): unknown {
  const { protocol, catalog } = context;
  const wanted = routes[path];
  if (wanted !== undefined && wanted !== method) throw new HttpError(405, 'Method Not Allowed');
  switch (path) {
    case '/health':
      return { status: 'healthy' };
    case '/metadata':
      return metadata(context);
    case '/schema':
      return schema;
    case '/openapi.json':
      return openApi;
    case '/list_environments':
      return catalog.apps.map((app) => app.name);
    case '/state':
      return forOneRequest(context, (session) => protocol.state(session));
    case '/reset': {
      const args = valid(checkReset(body(text), ['body']));
      return forOneRequest(context, (session) => httpObservation(protocol.reset(session, args)));
    }
    case '/step': {
      const given = body(text);
      if (!isObject(given.action)) {
        const problem = given.action === undefined ? 'missing' : 'dict_type';
        const msg = problem === 'missing' ? 'Field required' : 'Input should be a valid dictionary';
        throw new HttpError(422, [
          { type: problem, loc: ['body', 'action'], msg, input: given.action ?? given },
        ]);
      }
      const action = valid(checkAction(given.action, ['body', 'action']));
      return forOneRequest(context, (session) => httpObservation(protocol.step(session, action)));
    }
    case '/mcp':
      return answerMcp(context, text);
    case '/x/sessions':
      return context.sessions.counts(performance.now());
    case '/x/grade':
      return grade(context, text);
  }
  const named = /^\/([^/]+)\/(splits|tasks|num_tasks|task|task_range)$/.exec(path);
  if (!named) throw new HttpError(404, 'Not Found');
  if ((named[2] === 'splits') !== (method === 'GET')) throw new HttpError(405, 'Method Not Allowed');
  return answerTasks(context, decodeName(named[1] ?? ''), named[2] ?? '', text);
}

const routes: Record<string, string> = {
  '/health': 'GET',
  '/metadata': 'GET',
  '/schema': 'GET',
  '/openapi.json': 'GET',
  '/list_environments': 'GET',
  '/state': 'GET',
  '/reset': 'POST',
  '/step': 'POST',
  '/mcp': 'POST',
  '/x/grade': 'POST',
  '/x/sessions': 'GET',
};

function answerMcp(context: SocketContext, text: string): unknown {
  let request: unknown;
  try {
    request = JSON.parse(text);
  } catch {
    return rpcError(parseError, 'Parse error');
  }
  try {
    return answerRpc(context, request);
  } catch (error) {
    if (!(error instanceof InjectedFault) || error.fault !== 'error') throw error;
    const id = isObject(request) ? (request.id as string | number | null) : null;
    return rpcError(-32603, error.message, id);
  }
}

function grade({ protocol, sessions }: SocketContext, text: string): unknown {
  const args = valid(checkGrade(body(text), ['body']));
  protocol.checkToken(args.token);
  const session = sessions.get(args.sessionId ?? '');
  if (!session) throw new HttpError(404, `Unknown session_id: ${args.sessionId ?? ''}`);
  session.lastUsed = performance.now();
  return protocol.grade(session, args);
}

function answerTasks({ catalog }: SocketContext, name: string, what: string, text: string): unknown {
  const lists = catalog.lists(name);
  if (!lists) throw new HttpError(404, `unknown environment '${name}'`);
  if (what === 'splits') {
    return splits.map((split) => ({ name: split, type: split === 'train' ? 'train' : 'custom' }));
  }
  const query = valid(checkTaskQuery(body(text), what === 'task' || what === 'task_range' ? what : 'all'));
  const { split, index = 0 } = query;
  const count = lists.numTasks(split);
  if (count === undefined) throw new HttpError(400, `Invalid split; there are ${splits.join(', ')}`);
  const list = (from: number, to: number): unknown[] =>
    Array.from({ length: Math.max(0, to - from) }, (_, index) => lists.taskAt(split, from + index));
  const clamp = (index: number): number => Math.min(count, Math.max(0, index));
  switch (what) {
    case 'num_tasks':
      return { num_tasks: count };
    case 'task':
      if (index < 0 || index >= count) throw new HttpError(400, 'Invalid task index');
      return { task: lists.taskAt(split, index) };
    case 'task_range':
      return { tasks: list(clamp(query.start ?? 0), clamp(query.stop ?? count)) };
    default:
      return { tasks: list(0, count), env_name: name };
  }
}

function metadata({ catalog }: SocketContext): unknown {
  return {
    name: 'longhaul',
    description: catalog.apps.map((app) => `${app.name}: ${app.description}`).join(' · '),
    readme_content: null,
    version: appsVersion,
    author: null,
    documentation_url: null,
  };
}

const metadataSchema = { type: 'object', additionalProperties: true };
const callTool = {
  type: 'object',
  properties: {
    type: { const: 'call_tool', default: 'call_tool' },
    tool_name: { type: 'string' },
    arguments: { type: 'object', additionalProperties: true },
    metadata: metadataSchema,
  },
  required: ['tool_name'],
  additionalProperties: false,
};
const listTools = {
  type: 'object',
  properties: { type: { const: 'list_tools' }, metadata: metadataSchema },
  required: ['type'],
  additionalProperties: false,
};
const schema = {
  action: { title: 'Action', anyOf: [callTool, listTools] },
  observation: {
    title: 'Observation',
    type: 'object',
    properties: {
      done: { type: 'boolean' },
      reward: { type: ['number', 'null'] },
      metadata: metadataSchema,
      tool_name: { type: 'string' },
      result: {},
      error: {},
      tools: { type: 'array' },
    },
  },
  state: {
    title: 'State',
    type: 'object',
    properties: {
      episode_id: { type: ['string', 'null'] },
      step_count: { type: 'integer' },
      task_key: { type: ['string', 'null'] },
      env_key: { type: ['string', 'null'] },
    },
  },
  reset_observation: {
    title: 'ResetObservation',
    type: 'object',
    properties: {
      prompt: { type: 'string' },
      task_key: { type: 'string' },
      env_key: { type: 'string' },
      difficulty: { type: 'number' },
      env_variables: { type: 'object' },
    },
  },
};

const openApi = {
  openapi: '3.1.0',
  info: { title: 'Longhaul environment server', version: '1.0.0' },
  paths: Object.fromEntries(
    Object.entries(routes).map(([path, method]) => [
      path,
      { [method.toLowerCase()]: { responses: { '200': { description: 'OK' } } } },
    ]),
  ),
};

function forOneRequest<T>({ sessions }: SocketContext, run: (session: Session) => T): T {
  const session = sessions.create('http');
  try {
    return run(session);
  } finally {
    sessions.end(session);
  }
}

function httpObservation(observation: Observation): unknown {
  return { metadata: null, ...observationData(observation) };
}

function body(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = text === '' ? {} : JSON.parse(text);
  } catch {
    throw new HttpError(422, [
      { type: 'json_invalid', loc: ['body', 0], msg: 'JSON decode error', input: {} },
    ]);
  }
  if (isObject(value)) return value;
  throw new HttpError(422, [
    { type: 'model_attributes_type', loc: ['body'], msg: 'Input should be a valid dictionary', input: value },
  ]);
}

function valid<T>(checked: Checked<T>): T {
  if (checked.ok) return checked.value;
  throw new HttpError(422, checked.problems);
}

function decodeName(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBodyBytes) throw new HttpError(413, `the body is bigger than ${maxBodyBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function send(response: ServerResponse, status: number, value: unknown): void {
  const text = JSON.stringify(value);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}
