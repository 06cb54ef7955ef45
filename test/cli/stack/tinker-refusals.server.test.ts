// What `longhaul doctor` says where a Tinker server answers nothing, or a no that quotes the key.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { checkTinker } from '../../../src/cli/stack/tinker-checks.js';
import { freePort } from '../../../src/stack/free-port.js';

const target = { model: null, spec: null, key: 'tml-very-secret' };

test('a server that does not answer is one line', async () => {
  const url = `http://127.0.0.1:${await freePort()}`;
  expect(await checkTinker({ ...target, url })).toEqual([
    {
      check: 'tinker model',
      ok: false,
      detail: expect.stringMatching(`no Tinker server answers at ${url} .*: start the server`) as string,
    },
  ]);
});

test('a refusal that quotes the key does not make it public', async () => {
  const server = createServer(({ headers }, response) => {
    response.writeHead(401, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ detail: `bad key ${String(headers['x-api-key'])}` }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const results = await checkTinker({ ...target, url }).finally(() => server.close());
  expect(results).toEqual([
    {
      check: 'tinker model',
      ok: false,
      detail: expect.stringMatching(/401 bad key .*TINKER_API_KEY/) as string,
    },
  ]);
  expect(JSON.stringify(results)).not.toContain(target.key);
});
