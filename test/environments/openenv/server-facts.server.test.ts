// A server's facts are asked for with time-outs in time awake (R25): a time-out that elapses while the node is stopped is nobody's failure.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { askIdentities } from '../../../src/activities/evaluation/environment-identities.js';
import { askServerFacts } from '../../../src/environments/openenv/server-facts.js';

const slowServer = `require('node:http')
  .createServer((request, response) => setTimeout(() => response.end('{"name":"slow","version":"1"}'), 200))
  .listen(0, '127.0.0.1', function () { console.log(this.address().port); });`;

/** Blocks this process, as if it were stopped. */
async function standStill(ms: number): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

describe('a server that answers after 0.2 s', () => {
  const server = spawn(process.execPath, ['-e', slowServer]);
  const { signal } = new AbortController();
  let url = '';
  beforeAll(async () => {
    const [port] = (await once(server.stdout, 'data')) as [Buffer];
    url = `http://127.0.0.1:${Number(port)}`;
  });
  afterAll(() => server.kill('SIGKILL'));

  it('is in time even if the node was stopped for longer than the limit', async () => {
    for (let round = 0; round < 3; round++) {
      const asked = askServerFacts({ url, gradesByToken: false, timeoutMs: 1_000 }, [], signal);
      await sleep(20 + 20 * round);
      await standStill(2_000);
      expect(await asked).toMatchObject({ name: 'slow', version: '1' });
    }
  });

  it('is still waited for if the node was stopped for longer than the limit', async () => {
    const waits: string[] = [];
    const asking = askIdentities(['slow'], {
      ...{
        environments: [{ env_key: 'slow', url }],
        tasks: [],
        callTimeoutS: 1,
        maxWaitS: 2,
        signal,
      },
      onWait: (_, { reason }) => waits.push(reason),
    });
    await sleep(50);
    await standStill(3_000);
    expect(Object.keys(await asking)).toEqual(['slow']);
    expect(waits).toEqual([]);
  });
});
