// What a caller learns of each answer of a Tinker server. The answers are scripted: those that the stock server gives are in test/policy/served.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { type RequestOptions, TinkerClient, type Waiting } from '../../../src/engine/tinker/futures.js';

/** Status and body, or a connection that breaks. */
type Answer = [status: number, body: unknown, headers?: Record<string, string>] | 'breaks';

let server: Server | null = null;
const seen: { path: string; body: Record<string, unknown>; key: string | undefined }[] = [];
afterEach(async () => {
  seen.length = 0;
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(null)));
  server = null;
});

/** Answers in order; the last one for ever. */
async function answering(...answers: Answer[]): Promise<TinkerClient> {
  server = createServer((request, response) => {
    let text = '';
    request.on('data', (piece: Buffer) => (text += piece.toString()));
    request.on('end', () => {
      const answer = answers.length > 1 ? answers.shift()! : answers[0]!;
      seen.push({
        path: request.url!.replace('/api/v1', ''),
        body: text === '' ? {} : (JSON.parse(text) as Record<string, unknown>),
        key: request.headers['x-api-key'] as string | undefined,
      });
      if (answer === 'breaks') return void request.socket.destroy();
      response.writeHead(answer[0], {
        'content-type': 'application/json',
        connection: 'close',
        ...answer[2],
      });
      response.end(answer[1] === '<html>' ? answer[1] : JSON.stringify(answer[1]));
    });
  });
  await new Promise<void>((resolve) => server!.listen(0, '127.0.0.1', resolve));
  return clientOf((server.address() as AddressInfo).port);
}

function clientOf(port: number): TinkerClient {
  return new TinkerClient({
    url: `http://127.0.0.1:${port}`,
    key: 'tml-secret',
    pause: () => Promise.resolve(),
  });
}

const step = { model_id: 'm', seq_id: 7 };
const accepted: Answer = [200, { request_id: '12' }];
const done: Answer = [200, { metrics: {} }];
const optim = (client: TinkerClient, options: RequestOptions = {}) =>
  client.run('/optim_step', step, { repeatable: true, ...options });

test('a request is sent with the key, and its result is fetched by requests of its own', async () => {
  const client = await answering(accepted, [408, null], [200, { type: 'try_again' }], done);
  expect(await optim(client)).toEqual({ metrics: {} });
  expect(seen.map(({ path }) => path)).toEqual(['/optim_step', ...Array<string>(3).fill('/retrieve_future')]);
  expect(seen.every(({ key }) => key === 'tml-secret')).toBe(true);
});

test.each<[string, Answer]>([
  ['a broken connection', 'breaks'],
  ['a 500', [500, { detail: 'oops' }]],
  ['a 503 of a proxy', [503, 'away']],
  ['a result that is gone (410)', [410, { detail: 'promise expired' }]],
  ['a request that the server does not know any more', [404, { detail: 'Future not found' }]],
])('%s in place of the result: the same number and body are sent again', async (_, lost) => {
  const client = await answering(accepted, lost, accepted, done);
  expect(await optim(client)).toEqual({ metrics: {} });
  const sent = seen.filter(({ path }) => path === '/optim_step');
  expect(sent.map(({ body }) => body)).toEqual([step, step]);
});

test('an unanswered submission is repeated if the server takes both for one request; otherwise it is in doubt', async () => {
  expect(await optim(await answering('breaks', accepted, done))).toEqual({ metrics: {} });
  await new Promise((resolve) => server!.close(resolve));
  seen.length = 0;
  const client = await answering('breaks', accepted, done);
  await expect(optim(client, { repeatable: false })).rejects.toMatchObject({ name: 'InDoubt' });
  expect(seen).toHaveLength(1);
});

test('a request whose answers stay lost is in doubt after four tries', async () => {
  const client = await answering('breaks');
  await expect(optim(client)).rejects.toMatchObject({ name: 'InDoubt' });
  expect(seen).toHaveLength(4);
});

test.each<[number, string, string]>([
  [401, 'no such key', 'PolicyServerDenied'],
  [402, 'add credit', 'PolicyServerDenied'],
  [403, 'not yours', 'PolicyServerDenied'],
  [400, 'Model m is not loaded', 'ModelLost'],
  [404, 'Model m not found', 'ModelLost'],
  [400, 'unknown loss', 'TinkerRefused'],
  [409, 'number was used for another body', 'TinkerRefused'],
  [422, 'no such field', 'TinkerRefused'],
])('%i "%s" is %s, and is not sent again', async (status, detail, name) => {
  const client = await answering([status, { detail }]);
  await expect(optim(client)).rejects.toMatchObject({ name, message: expect.stringContaining(detail) });
  expect(seen).toHaveLength(1);
});

test('a 429 is waited out and named, however often it comes', async () => {
  const waits: Waiting[] = [];
  const full: Answer = [429, { detail: 'slow down' }];
  const client = await answering(...Array<Answer>(6).fill(full), accepted, done);
  expect(await optim(client, { onWaiting: (wait) => waits.push(wait) })).toEqual({ metrics: {} });
  expect(waits).toHaveLength(6);
  expect(waits[0]!.reason).toContain('429');
});

test('a queue that stands still is waited for by the name that the server gives it', async () => {
  const waits: Waiting[] = [];
  const paused: Answer = [200, { type: 'try_again', queue_state: 'paused_capacity' }];
  await optim(await answering(accepted, paused, done), { onWaiting: (wait) => waits.push(wait) });
  expect(waits).toEqual([{ reason: "the server's queue: paused_capacity" }]);
});

test('a server that accepts no connection is waited for as long as the run may wait, and then blocks it', async () => {
  await answering(done);
  const { port } = server!.address() as AddressInfo;
  await new Promise((resolve) => server!.close(resolve));
  server = null;
  const waits: Waiting[] = [];
  const waiting = optim(clientOf(port), { maxWaitMs: 50, onWaiting: (wait) => waits.push(wait) });
  await expect(waiting).rejects.toMatchObject({ name: 'PolicyServerUnavailable' });
  expect(waits[0]!.reason).toContain(`no Tinker server answers at http://127.0.0.1:${port}`);
});

test.each<[string, Answer]>([
  ['a queue that stays paused', [200, { type: 'try_again', queue_state: 'paused_capacity' }]],
  ['a queue that stays paused, by 408', [408, { queue_state: 'paused_capacity' }]],
  ['a server that always has too many requests', [429, { detail: 'slow down' }]],
])('%s blocks the run after its longest wait', async (_, answer) => {
  const client = await answering(accepted, answer);
  await expect(optim(client, { maxWaitMs: 50 })).rejects.toMatchObject({ name: 'PolicyServerUnavailable' });
});

test('a result with an error is a refusal, although its status is 200', async () => {
  const failed: Answer = [200, { error: 'the batch is empty', category: 'user' }];
  await expect(optim(await answering(accepted, failed))).rejects.toMatchObject({
    name: 'TinkerRefused',
    message: expect.stringContaining('the batch is empty'),
  });
});

test('a page of a proxy in place of a result is a lost answer', async () => {
  const client = await answering(accepted, [200, '<html>'], accepted, done);
  expect(await optim(client)).toEqual({ metrics: {} });
});

test('the key is not sent to another origin that a download is redirected to', async () => {
  const keys: (string | undefined)[] = [];
  const other = createServer((request, response) => {
    keys.push(request.headers['x-api-key'] as string | undefined);
    response.writeHead(200, { 'content-type': 'application/gzip', connection: 'close' }).end('adapters');
  });
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  try {
    const location = `http://127.0.0.1:${(other.address() as AddressInfo).port}/archive`;
    const client = await answering([302, null, { location }]);
    expect(Buffer.from(await client.download('/archive')).toString()).toBe('adapters');
    expect(keys).toEqual([undefined]);
    expect(seen[0]!.key).toBe('tml-secret');
  } finally {
    await new Promise((resolve) => other.close(resolve));
  }
});

test('a read is repeated, a call that makes something is not', async () => {
  const client = await answering('breaks', [200, { supported_models: [] }]);
  expect(await client.call('/get_server_capabilities')).toEqual({ supported_models: [] });
  await new Promise((resolve) => server!.close(resolve));
  const other = await answering('breaks');
  await expect(other.call('/create_session', {})).rejects.toMatchObject({ name: 'InDoubt' });
});

test('an aborted request ends with the reason of its signal', async () => {
  const abort = new AbortController();
  const client = await answering(accepted, [408, null]);
  const waiting = optim(client, { signal: abort.signal, onWaiting: () => abort.abort(new Error('paused')) });
  await expect(waiting).rejects.toThrow('paused');
});
