// Sessions that outlive their sockets. Each test sets how the server counts and refuses steps, and how long it takes.
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { AttachedSession } from '../../../src/environments/openenv/attached-session.js';
import { MadeSessions } from '../../../src/environments/openenv/made-sessions.js';
import { OpenEnvServer } from '../../../src/environments/openenv/openenv-server.js';
import { until } from '../../support/until.js';

const quiet = new AbortController().signal;
const socketLost = { kind: 'unavailable', reason: 'socket_lost' };

/** The server answers `POST /mcp` only after this promise. */
let making: Promise<void>;
let makingError: string | null;
let handshake: number | null;
let stateFails: boolean;
/** Why the next step gets no answer: it is `lost` before it is carried out, or carried out and `unanswered`. */
let nextStep: 'lost' | 'unanswered' | null;
let carriedOut: number;
let counted: number;
let closed: string[];
let sockets: WebSocketServer;
let http: ReturnType<typeof createServer>;
let url: string;
let folder: string;
let made: MadeSessions;

beforeEach(async () => {
  [making, makingError, handshake, stateFails, nextStep] = [Promise.resolve(), null, null, false, null];
  [carriedOut, counted, closed] = [0, 0, []];
  http = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => void answer(body).then((reply) => response.end(JSON.stringify(reply))));
  });
  sockets = new WebSocketServer({
    server: http,
    verifyClient: (_, accept) => accept(handshake === null, handshake ?? 200),
  });
  sockets.on('connection', (socket, { url: address = '' }: IncomingMessage) => {
    socket.on('message', (message: Buffer) => {
      const { type, data = {} } = JSON.parse(message.toString()) as {
        type: string;
        data?: { refused?: boolean };
      };
      const send = (reply: object): void => socket.send(JSON.stringify(reply));
      const fail = (code: string): void => send({ type: 'error', data: { code, message: 'no' } });
      if (!address.includes('session_id=made')) return fail('SESSION_ERROR');
      if (type === 'state')
        return stateFails ? fail('STATE_ERROR') : send({ type: 'state', data: { step_count: counted } });
      if (type === 'reset') counted = 0;
      if (type === 'step') {
        const fate = nextStep;
        nextStep = null;
        if (fate === 'lost') return socket.terminate();
        carriedOut++;
        if (!data.refused) counted++;
        if (fate === 'unanswered') return socket.terminate();
      }
      return send({ type: 'observation', data: { observation: {}, reward: null, done: false } });
    });
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  folder = mkdtempSync(join(tmpdir(), 'longhaul-sessions-'));
  made = new MadeSessions(folder, () => undefined);
});
afterEach(async () => {
  for (const client of sockets.clients) client.terminate();
  http.close();
  http.closeAllConnections();
  await once(http, 'close');
  rmSync(folder, { recursive: true });
});

async function answer(body: string): Promise<object> {
  const { method, params } = JSON.parse(body) as { method: string; params: { session_id?: string } };
  if (method.endsWith('close')) {
    closed.push(String(params.session_id));
    return { result: {} };
  }
  await making;
  return makingError === null
    ? { result: { session_id: 'made' } }
    : { error: { code: 1, message: makingError } };
}

const make = (timeoutMs = 5000, signal = quiet): Promise<AttachedSession> =>
  AttachedSession.make({ url, headers: {}, made, censor: (text) => text }, timeoutMs, signal);
const step = (session: AttachedSession, data: object = {}) => session.request({ type: 'step', data }, 5000);

async function begun(): Promise<AttachedSession> {
  const session = await make();
  await session.request({ type: 'reset', data: {} }, 5000);
  return session;
}

/** Waits until the session knows the server's count after its last step. */
const compared = () => new Promise((resolve) => setTimeout(resolve, 100));

describe('a step without an answer', () => {
  it('is sent again on a server whose count keeps pace', async () => {
    const session = await begun();
    await step(session);
    await compared();
    nextStep = 'lost';
    await step(session);
    expect(carriedOut).toBe(2);
    await session.closed();
  });

  it('is never sent again on a server that has not counted a refused step', async () => {
    const session = await begun();
    await step(session);
    await step(session, { refused: true });
    await compared();
    nextStep = 'unanswered';
    await expect(step(session)).rejects.toMatchObject(socketLost);
    expect(carriedOut).toBe(3);
    await session.closed();
  });

  it('leaves no socket behind if the server cannot say its state', async () => {
    const session = await begun();
    await step(session);
    await compared();
    [nextStep, stateFails] = ['lost', true];
    await expect(step(session)).rejects.toMatchObject(socketLost);
    await session.closed();
    await until(() => sockets.clients.size === 0, 'the sockets to end');
  });
});

describe('a session that the server makes too late', () => {
  it.each(['signal', 'limit'])('is given up at the %s, and closed as soon as it exists', async (by) => {
    let come = (): void => undefined;
    making = new Promise((resolve) => (come = resolve));
    const ending = new AbortController();
    const opened = by === 'limit' ? make(200) : make(60_000, ending.signal);
    if (by === 'signal') setTimeout(() => ending.abort(new Error('ended')), 200);
    await expect(opened).rejects.toThrow(by === 'limit' ? /makes no session within/ : 'ended');
    come();
    await until(() => closed.length === 1 && readdirSync(folder).length === 0, 'the session to be closed');
    expect(closed).toEqual(['made']);
  });
});

describe('a server', () => {
  const server = (headers?: Record<string, string>) =>
    new OpenEnvServer({ url, sessions: 'attached', ...(headers ? { headers } : {}) });

  it('that repeats a header’s secret in an error is quoted without the secret', async () => {
    makingError = 'I know s3cr3t-value';
    const opened = server({ Authorization: 'Bearer s3cr3t-value' }).connectAttached(made, 5000, quiet);
    await expect(opened).rejects.toThrow(/I know \[secret removed\]/);
  });

  it.each([
    [401, 'Unauthorized|401'],
    [403, 'has no /ws'],
    [404, 'has no /ws'],
  ])('that answers the handshake with %i is refused at a run’s start', async (status, said) => {
    handshake = status;
    const looked = server().look(5000, quiet);
    await expect(looked).rejects.toMatchObject({ kind: 'failed' });
    await expect(looked).rejects.toThrow(new RegExp(said));
  });
});
