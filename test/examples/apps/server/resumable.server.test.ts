// Sessions that survive a lost socket: how a client asks for such a session, finds it again and takes it over, and how the session ends.
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { EnvironmentServer } from '../../../../examples/apps/server/environment-server.js';
import { openRawSocket } from '../../../support/servers/raw-socket.js';
import { until } from '../../../support/until.js';
import { startCounterServer, worlds } from '../../../environments/stand-in.js';

let server: EnvironmentServer;
beforeEach(async () => {
  server = await startCounterServer({ resumeTimeoutMs: 60_000 });
});
afterEach(() => server.close());

const reset = { type: 'reset', data: { task_key: 'counter/up/2' } };
const increment = { type: 'step', data: { tool_name: 'increment' } };

/** What the handshake of a path says about the session; the socket stays open. */
async function handshake(url: string, path: string): Promise<{ id: string | undefined; socket: WebSocket }> {
  const socket = new WebSocket(url.replace(/^http/, 'ws') + path);
  let id: string | undefined;
  socket.once('upgrade', ({ headers }) => (id = headers['x-session-id'] as string | undefined));
  await once(socket, 'open');
  return { id, socket };
}

async function ask(
  socket: WebSocket,
  frame: unknown,
): Promise<Record<string, any>> /* eslint-disable-line @typescript-eslint/no-explicit-any */ {
  socket.send(JSON.stringify(frame));
  const [reply] = (await once(socket, 'message')) as [Buffer];
  return JSON.parse(reply.toString()) as Record<string, unknown>;
}

/** A resumable session in the middle of an episode. */
async function startSession(url = server.url): Promise<{ id: string; socket: WebSocket }> {
  const { id, socket } = await handshake(url, '/ws?resumable=true');
  await ask(socket, reset);
  await ask(socket, increment);
  return { id: id!, socket };
}

const textOf = (reply: Record<string, any>): unknown => reply.data.observation.result.data; // eslint-disable-line @typescript-eslint/no-explicit-any
const attach = (id: string, more = '') => openRawSocket(server.url, `/ws?session_id=${id}${more}`);

describe('a resumable session', () => {
  it('is named in the handshake of a client that asks for a resumable session, and of no other client', async () => {
    const asked = await handshake(server.url, '/ws?resumable=true');
    expect(asked.id).toMatch(/^[0-9a-f-]{36}$/);
    for (const path of ['/ws', `/ws?session_id=${asked.id}`, '/ws?resumable=no', '/mcp?resumable=true']) {
      expect((await handshake(server.url, path)).id).toBeUndefined();
    }
  });

  it('names its world by the key of the reset that opened it, and by no other key', async () => {
    const { socket } = await handshake(server.url, '/ws?resumable=true');
    const world = async () => (await ask(socket, { type: 'state' })).data.reset_key as unknown;
    expect(await world()).toBeUndefined();
    for (const key of ['one', 'two']) {
      await ask(socket, { type: 'reset', data: { ...reset.data, idempotency_key: key } });
      await ask(socket, increment);
      expect(await world()).toBe(key);
    }
    await ask(socket, reset);
    expect(await world()).toBeUndefined();
  });

  it('continues on another socket when its own is lost', async () => {
    const { id, socket } = await startSession();
    socket.terminate();
    const second = await until(async () => {
      const raw = await attach(id);
      return (await raw.ask({ type: 'state' })).type === 'state' ? raw : null;
    }, 'the session to be free');
    expect(textOf(await second.ask(increment))).toBe('2');
  });

  it('can be taken from a socket before the server notices its loss; frames of the old socket are then ignored', async () => {
    const { id, socket } = await startSession();
    const refused = await attach(id);
    expect((await refused.next()).data.message).toMatch(/already has an attached WebSocket/);
    const replaced = once(socket, 'close');
    const second = await attach(id, '&take_over=true');
    socket.send(JSON.stringify(increment));
    expect(textOf(await second.ask(increment))).toBe('2');
    await replaced;
    expect(textOf(await second.ask(increment))).toBe('3');
    expect(server.stats().sessions).toBe(1);
  });

  it.each<[string, (socket: WebSocket) => void]>([
    ['by a close frame of the protocol', (socket) => socket.send('{"type":"close"}')],
    [
      'by a close frame of the protocol even if its sender is gone',
      (socket) => socket.send('{"type":"close"}', () => socket.terminate()),
    ],
    ['by a WebSocket that is closed', (socket) => socket.close(1000)],
    ['by a frame that is no object', (socket) => socket.send('[]')],
  ])('ends %s', async (_, end) => {
    const { socket } = await startSession();
    end(socket);
    await until(() => server.stats().sessions === 0, 'the session to end', 5000);
    expect(worlds.open).toBe(0);
  });

  it('ends after the time-out if its client does not return, but not while the session has a socket', async () => {
    const brief = await startCounterServer({ sessionTimeoutMs: 60_000, resumeTimeoutMs: 200 });
    const held = await startSession(brief.url);
    const left = await startSession(brief.url);
    left.socket.terminate();
    await until(() => brief.stats().sessions === 1, 'the session to end', 5000);
    expect(textOf(await ask(held.socket, increment))).toBe('2');
    const late = await openRawSocket(brief.url, `/ws?session_id=${left.id}&take_over=true`);
    expect((await late.next()).data.message).toBe(`Unknown session_id: ${left.id}`);
    await brief.close();
    expect(worlds.open).toBe(0);
  });
});
