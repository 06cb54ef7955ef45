// A request that is repeated with its key, because its reply was lost, gets the earlier answer and is not run again.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ServedApp } from '../../../../examples/apps/server/app-session.js';
import type { EnvironmentServer } from '../../../../examples/apps/server/environment-server.js';
import { breakFirst, startFaultProxy, type FaultProxy } from '../../../support/servers/fault-proxy.js';
import { openRawSocket, type RawSocket } from '../../../support/servers/raw-socket.js';
import { startTcpProxy, type TcpProxy } from '../../../support/servers/tcp-proxy.js';
import { until } from '../../../support/until.js';
import { counter, noFaults, startCounterServer, token } from '../../../environments/stand-in.js';

let server: EnvironmentServer;
let proxy: TcpProxy;
beforeEach(async () => {
  server = await startCounterServer();
  proxy = await startTcpProxy(new URL(server.url).host);
});
afterEach(async () => {
  await proxy.stop();
  await server.close();
});

const task = { task_key: 'counter/up/2' };
const increment = (idempotency_key?: unknown) => ({
  type: 'step',
  data: { tool_name: 'increment', metadata: { idempotency_key } },
});

async function rpc(
  url: string,
  method: string,
  params: Record<string, unknown> = {},
): Promise<{ result?: Record<string, unknown>; error?: { code: number; message: string } }> {
  const body = JSON.stringify({ jsonrpc: '2.0', method, params, id: 1 });
  return (await fetch(`${url}/mcp`, { method: 'POST', body })).json() as never;
}

async function createSession(): Promise<string> {
  return (await rpc(server.url, 'openenv/session/create')).result?.session_id as string;
}

/** Tries again until the server has noticed the end of the earlier socket. */
async function attach(session: string): Promise<RawSocket> {
  return until(async () => {
    const socket = await openRawSocket(proxy.url, `/ws?session_id=${session}`);
    return (await socket.ask({ type: 'state' })).type === 'state' ? socket : null;
  }, 'the session to be free for another socket');
}

async function inSession(): Promise<{ session: string; socket: RawSocket }> {
  const session = await createSession();
  const socket = await attach(session);
  await socket.ask({ type: 'reset', data: task });
  return { session, socket };
}

/** Sends a frame; the socket is cut before the reply arrives. */
async function loseReplyTo(socket: RawSocket, frame: unknown): Promise<void> {
  const lost = proxy.loseNextReply();
  await expect(socket.ask(frame)).rejects.toThrow('the socket closed');
  await lost;
}

const textOf = (reply: Record<string, any>): unknown => reply.data.observation.result.data; // eslint-disable-line @typescript-eslint/no-explicit-any

describe('a call, if its socket is cut before the reply arrives', () => {
  it('gets that reply when it is repeated with its key, and runs once', async () => {
    const { session, socket } = await inSession();
    await loseReplyTo(socket, increment('first'));
    const second = await attach(session);
    expect(textOf(await second.ask(increment('first')))).toBe('1');
    expect(textOf(await second.ask(increment('first')))).toBe('1');
    expect(textOf(await second.ask(increment('second')))).toBe('2');
    expect((await second.ask({ type: 'state' })).data.step_count).toBe(2);
  });

  it('runs again when it is repeated without a key', async () => {
    const { session, socket } = await inSession();
    await loseReplyTo(socket, increment());
    expect(textOf(await (await attach(session)).ask(increment()))).toBe('2');
  });

  it('fails in the same way again if a bug made it fail', async () => {
    const { session, socket } = await inSession();
    const crash = { type: 'step', data: { tool_name: 'crash', metadata: { idempotency_key: 'k' } } };
    await loseReplyTo(socket, crash);
    const reply = await (await attach(session)).ask(crash);
    expect(reply.data).toEqual({ code: 'EXECUTION_ERROR', message: 'table counter has no column n' });
  });
});

describe('a call that fails after it has changed the world', () => {
  /** Counts each call, and only then fails. */
  const halfDone: ServedApp = {
    ...counter,
    open(task, options) {
      const world = counter.open(task, options);
      const call: typeof world.call = (name) => {
        const counted = world.call('increment', {});
        if (name === 'crash') throw new Error(`a defect after ${counted.text}`);
        return counted;
      };
      return { ...world, call };
    },
  };

  it('fails with the same message when it is repeated with its key, and changes nothing more', async () => {
    await server.close();
    server = await startCounterServer({ apps: [halfDone] });
    const socket = await openRawSocket(server.url);
    await socket.ask({ type: 'reset', data: task });
    const crash = { type: 'step', data: { tool_name: 'crash', metadata: { idempotency_key: 'k' } } };
    const failed = { code: 'EXECUTION_ERROR', message: 'a defect after 1' };
    expect((await socket.ask(crash)).data).toEqual(failed);
    expect((await socket.ask(crash)).data).toEqual(failed);
    expect(textOf(await socket.ask(increment('next')))).toBe('2');
    expect((await socket.ask(crash)).data.message).toContain('it was answered before the newest request');
    expect((await socket.ask({ type: 'state' })).data.step_count).toBe(2);
  });
});

describe('a repeated reset', () => {
  it('with the same key gives the prompt again and does not change the world', async () => {
    const { socket } = await inSession();
    const reset = { type: 'reset', data: { ...task, idempotency_key: 'r' } };
    const opened = await socket.ask(reset);
    expect(await socket.ask(reset)).toEqual(opened);
    await socket.ask(increment('first'));
    expect((await socket.ask({ type: 'state' })).data.step_count).toBe(1);
  });

  it('with another key starts again, and the keys of the earlier episode may be used again', async () => {
    const { socket } = await inSession();
    await socket.ask(increment('first'));
    await socket.ask({ type: 'reset', data: { ...task, idempotency_key: 'r2' } });
    expect(textOf(await socket.ask(increment('first')))).toBe('1');
  });
});

describe('a grade, if its reply is lost', () => {
  it('gets the injected faults of one try, however often it is repeated', async () => {
    const asked: number[] = [];
    const faulty = await startCounterServer({
      faultRate: 0.5,
      faults: { ...noFaults, infrastructure: ({ turn }) => (asked.push(turn), undefined) },
    });
    const socket = await openRawSocket(faulty.url);
    await socket.ask({ type: 'reset', data: task });
    const grade = { type: 'grade', data: { token, final_answer: 'x', idempotency_key: 'g' } };
    const first = await socket.ask(grade);
    expect(await socket.ask(grade)).toEqual(first);
    expect(asked).toEqual([-1, -2]);
    await faulty.close();
  });
});

describe('over HTTP', () => {
  let http: FaultProxy;
  beforeEach(async () => {
    http = await startFaultProxy(server.url);
  });
  afterEach(() => http.stop());

  it('a tool call runs once, even if its connection breaks afterwards', async () => {
    const { session } = await inSession();
    const call = (idempotency_key: unknown) =>
      rpc(http.endpoint, 'tools/call', { name: 'increment', session_id: session, idempotency_key });
    http.plan(breakFirst(1, () => true, { kind: 'loseReply' }));
    await expect(call('a')).rejects.toThrow('fetch failed');
    expect((await call('a')).result?.data).toBe('1');
    expect((await call('b')).result?.data).toBe('2');
    expect((await call('a')).error).toEqual({
      code: -32602,
      message:
        'idempotency key "a": it was answered before the newest request; give each request a key of its own',
      data: null,
    });
    expect((await call(3)).error?.message).toBe(
      "'idempotency_key' must be a string of at most 255 characters",
    );
  });

  it('a call that ran on the socket is answered too', async () => {
    const { session, socket } = await inSession();
    await loseReplyTo(socket, increment('k'));
    const params = { name: 'increment', session_id: session, idempotency_key: 'k' };
    expect((await rpc(server.url, 'tools/call', params)).result?.data).toBe('1');
  });
});

describe('a key', () => {
  it.each([
    ['no text', increment(3), ['metadata', 'idempotency_key'], 'string_type'],
    ['too long', increment('k'.repeat(256)), ['metadata', 'idempotency_key'], 'string_too_long'],
    [
      'no text in a reset',
      { type: 'reset', data: { idempotency_key: {} } },
      ['idempotency_key'],
      'string_type',
    ],
  ])('that is %s is refused', async (_, frame, loc, type) => {
    const { socket } = await inSession();
    const { data } = await socket.ask(frame);
    expect(data).toMatchObject({ code: 'VALIDATION_ERROR', errors: [{ loc, type }] });
  });

  it('of an older call, or of another kind of request, is refused and nothing runs', async () => {
    const { socket } = await inSession();
    await socket.ask(increment('a'));
    await socket.ask(increment('b'));
    expect((await socket.ask(increment('a'))).data).toEqual({
      code: 'VALIDATION_ERROR',
      message:
        'idempotency key "a": it was answered before the newest request; give each request a key of its own',
    });
    const grade = { type: 'grade', data: { token, idempotency_key: 'b' } };
    expect((await socket.ask(grade)).data.message).toBe(
      'idempotency key "b": it came with a call; give each request a key of its own',
    );
    expect((await socket.ask({ type: 'state' })).data.step_count).toBe(2);
  });
});
