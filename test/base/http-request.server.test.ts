// The limits of a request hold for the whole answer, and what comes of a request without one.
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { httpRequest } from '../../src/base/http-request.js';
import { keepSecret } from '../../src/base/known-secrets.js';

let server: Server | undefined;
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(null)));
});

async function serverOf(answer: RequestListener): Promise<string> {
  server = createServer(answer);
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

/** Begins its answer at once, and sends another piece each time that a piece was received. Without a piece, it hangs. */
const endless =
  (piece: Buffer | null): RequestListener =>
  (_, response) => {
    response.writeHead(200).flushHeaders();
    const more = (): void => {
      while (piece && !response.destroyed && response.write(piece));
      response.once('drain', more);
    };
    more();
  };

test('a body that does not arrive ends with the time limit', async () => {
  const asked = httpRequest(await serverOf(endless(null)), { timeoutMs: 200 });
  await expect(asked).rejects.toMatchObject({ name: 'NoAnswer', reason: 'timeout', wasNotSent: false });
});

test('a body without end is cut off long before the time limit', async () => {
  const url = await serverOf(endless(Buffer.alloc(1 << 20)));
  const asked = httpRequest(url, { timeoutMs: 50_000, maxBytes: 32 << 20 });
  await expect(asked).rejects.toThrow('the answer is larger than 33554432 bytes');
});

test('a signal ends the wait for a body, with its reason', async () => {
  const stop = new AbortController();
  const asked = httpRequest(await serverOf(endless(null)), { timeoutMs: 50_000, signal: stop.signal });
  setTimeout(() => stop.abort(new Error('shut down')), 100);
  await expect(asked).rejects.toThrow('shut down');
});

test('a server that is not there has got nothing, and the message holds no secret', async () => {
  const url = await serverOf(() => undefined);
  const { port } = server?.address() as AddressInfo;
  server?.close();
  keepSecret(`127.0.0.1:${port}`);
  const asked = httpRequest(url, { timeoutMs: 50_000 });
  await expect(asked).rejects.toMatchObject({
    reason: 'connection',
    wasNotSent: true,
    message: 'connect ECONNREFUSED [secret removed]',
  });
});

test('headers go to no other address, unless the caller says so', async () => {
  const url = await serverOf(({ url: path }, response) => {
    response.writeHead(path === '/there' ? 200 : 302, { location: '/there' }).end('{"found": true}');
  });
  const request = { headers: { 'X-API-Key': 'mine' }, timeoutMs: 5_000 };
  await expect(httpRequest(url, request)).rejects.toMatchObject({ reason: 'connection' });
  expect(await httpRequest(url, { ...request, redirect: 'manual' })).toMatchObject({
    status: 302,
    ok: false,
  });
  const followed = await httpRequest(url, { ...request, redirect: 'follow' });
  expect(followed).toMatchObject({ status: 200, ok: true, text: '{"found": true}' });
});
