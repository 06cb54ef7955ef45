// Resets and queries of an instance whose manager comes late, or whose gateway answers in its place.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { InstanceApi } from '../../../../src/environments/fleet/instance-api.js';
import type { Instance, Orchestrator } from '../../../../src/environments/fleet/orchestrator.js';

let server: Server | undefined;
afterEach(() => server?.close());
const quiet = new AbortController().signal;

/** Answers the routes one after the other as given, then as the last says. */
function serve(routes: Record<string, readonly [status: number, body: object][]>): Server {
  const asked = new Map<string, number>();
  return createServer((request, response) => {
    const path = request.url ?? '';
    const answers = routes[path] ?? [[404, {}] as const];
    const count = asked.get(path) ?? 0;
    asked.set(path, count + 1);
    const [status, body] = answers[Math.min(count, answers.length - 1)] ?? [404, {}];
    request.resume();
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
}

async function listening(made: Server, port = 0): Promise<number> {
  server = made;
  await new Promise<void>((resolve) => made.listen(port, '127.0.0.1', resolve));
  return (made.address() as AddressInfo).port;
}

function apiAt(port: number): InstanceApi {
  const instance = { id: 'one', manager: `http://127.0.0.1:${port}` } as Instance;
  return new InstanceApi(instance, { runnerToken: () => Promise.resolve(null) } as unknown as Orchestrator);
}

it('waits with the reset for a manager that listens late and whose gateway has no upstream yet', async () => {
  const early = serve({});
  const port = await listening(early);
  early.close();
  const reset = apiAt(port).reset(quiet);
  await delay(600);
  await listening(
    serve({
      '/reset': [
        [503, {}],
        [200, { success: true }],
      ],
    }),
    port,
  );
  await reset;
});

it.each([408, 504, 524])(
  'takes a reset that a gateway gave up with %i for one that may still come',
  async (status) => {
    const port = await listening(serve({ '/reset': [[status, {}]] }));
    await expect(apiAt(port).reset(quiet)).rejects.toMatchObject({ kind: 'unavailable', reason: 'timeout' });
  },
);

it('takes a reset that the manager refuses for refused', async () => {
  const port = await listening(serve({ '/reset': [[500, { error: 'no seed' }]] }));
  await expect(apiAt(port).reset(quiet)).rejects.toMatchObject({ kind: 'failed', reason: 'reset' });
});

it('discards a grade only for what a database says while the verifier runs', async () => {
  const right: [number, object] = [200, { success: true }];
  const during = async (answers: readonly [number, object][]): Promise<unknown> => {
    const query = '/resources/sqlite/current/query';
    const resources: [number, object] = [200, { resources: [{ type: 'sqlite', name: 'current' }] }];
    const port = await listening(serve({ '/resources': [resources], [query]: [right, ...answers] }));
    const api = apiAt(port);
    await api.queryAll(true);
    return api.queryDuring(delay(1_200, 'graded')).finally(() => server?.close());
  };
  expect(await during([[429, {}], [502, {}], right])).toBe('graded');
  await expect(
    during([right, [200, { success: false, error: 'database is locked' }], right]),
  ).rejects.toMatchObject({
    ...{ kind: 'failed', reason: 'canary', message: expect.stringContaining('database is locked') as string },
  });
});
