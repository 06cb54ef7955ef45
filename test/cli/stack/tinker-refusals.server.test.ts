// What `longhaul doctor` says if a Tinker server does not answer, or refuses and quotes the key. Also how it recognises SkyRL's server.
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { checkTinker, isSkyrl } from '../../../src/cli/stack/tinker-checks.js';
import { freePort } from '../../../src/stack/free-port.js';

const target = { model: null, spec: null, key: 'tml-very-secret' };

test('a server that does not answer is reported in one line', async () => {
  const url = `http://127.0.0.1:${await freePort()}`;
  expect(await checkTinker({ ...target, url })).toEqual([
    {
      check: 'tinker model',
      ok: false,
      detail: expect.stringMatching(`no Tinker server answers at ${url} .*: start the server`) as string,
    },
  ]);
});

/** Calls `use` with the URL of a server that answers by `listener`. */
async function withServer<T>(listener: RequestListener, use: (url: string) => Promise<T>): Promise<T> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`).finally(() => server.close());
}

test('a refusal that quotes the key does not make it public', async () => {
  const results = await withServer(
    ({ headers }, response) => {
      response.writeHead(401, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify({ detail: `bad key ${String(headers['x-api-key'])}` }));
    },
    (url) => checkTinker({ ...target, url }),
  );
  expect(results).toEqual([
    {
      check: 'tinker model',
      ok: false,
      detail: expect.stringMatching(/401 bad key .*TINKER_API_KEY/) as string,
    },
  ]);
  expect(JSON.stringify(results)).not.toContain(target.key);
});

test.each([
  ['{"name":"Tinker API Mock","version":"0.0.1"}', true],
  ['{"detail":"Not Found"}', false],
  ['<html></html>', false],
])('a server whose root answers %s is SkyRL’s: %s', async (body, expected) => {
  expect(await withServer((_, response) => void response.end(body), isSkyrl)).toBe(expected);
});
