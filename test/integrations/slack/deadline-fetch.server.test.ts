// One deadline for an answer and its body, and a limit to its size: Slack's client guarantees neither.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { deadlineFetch } from '../../../src/integrations/slack/deadline-fetch.js';

let server: Server | undefined;
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(null)));
});

/** Begins its answer at once, and sends another piece each time that a piece was received. Without a piece, it hangs. */
async function serverOf(piece: Buffer | null): Promise<string> {
  server = createServer((_, response) => {
    response.writeHead(200).flushHeaders();
    const more = (): void => {
      while (piece && !response.destroyed && response.write(piece));
      response.once('drain', more);
    };
    more();
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

test('a body that does not arrive ends with the deadline', async () => {
  const fetched = deadlineFetch(200, new AbortController().signal)(await serverOf(null));
  await expect(fetched).rejects.toMatchObject({ name: 'TimeoutError' });
});

test('a body without end is cut off long before the deadline', async () => {
  const fetched = deadlineFetch(50_000, new AbortController().signal)(await serverOf(Buffer.alloc(1 << 20)));
  await expect(fetched).rejects.toThrow('the answer is larger than 33554432 bytes');
});

test('a stop ends the wait for a body, with its reason', async () => {
  const stop = new AbortController();
  const fetched = deadlineFetch(50_000, stop.signal)(await serverOf(null));
  setTimeout(() => stop.abort(new Error('shut down')), 100);
  await expect(fetched).rejects.toThrow('shut down');
});
