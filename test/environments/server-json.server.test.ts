// Servers in Python may write numbers that JSON does not allow. Tests this for each route.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { OpenEnvServer } from '../../src/environments/openenv/openenv-server.js';
import { askServerFacts } from '../../src/environments/openenv/server-facts.js';
import { readServerTasks } from '../../src/environments/openenv/task-api.js';

const quiet = new AbortController().signal;
const closers: (() => void)[] = [];
afterEach(() => closers.splice(0).forEach((close) => close()));

/** `routes`: the text that each path answers with 200; other paths answer 404. */
async function serve(routes: Record<string, string>): Promise<string> {
  const server = createServer(({ url = '' }, response) => {
    response.statusCode = url in routes ? 200 : 404;
    response.end(routes[url] ?? '{"detail":"Not Found"}');
  });
  closers.push(() => (server.closeAllConnections(), server.close()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const contractOf = async (schema: string) =>
  new OpenEnvServer({ url: await serve({ '/schema': schema }) }).contract(1_000);

it.each([['Infinity'], ['-Infinity'], ['NaN']])(
  'a schema with %s is that of its actions',
  async (written) => {
    const schema = `{"action":{"title":"MoveAction","properties":{"by":{"type":"number","maximum":${written}}}}}`;
    const { kind, act } = await contractOf(schema);
    expect(kind).toBe('gym');
    expect(act?.input_schema.properties).toEqual({ by: { type: 'number', maximum: written } });
  },
);

it.each([
  ['<html>Sign in</html>', /is not JSON: <html>Sign in<\/html>: correct it, let it answer 404, or set/],
  ['', /is not JSON/],
  ['{"action":', /is not JSON/],
])('a schema that is not JSON is an error, unlike a missing one: %j', async (schema, message) => {
  await expect(contractOf(schema)).rejects.toMatchObject({
    ...{ kind: 'failed', reason: 'contract' },
    message: expect.stringMatching(message) as string,
  });
});

it('a server without a schema lists tools', async () => {
  expect(await new OpenEnvServer({ url: await serve({}) }).contract(1_000)).toEqual({ kind: 'mcp' });
});

it('its facts are read', async () => {
  const url = await serve({ '/metadata': '{"name":"count","version":"2","score":NaN}' });
  const asked = askServerFacts({ url, gradesByToken: false, timeoutMs: 1_000 }, [], quiet);
  expect(await asked).toMatchObject({ name: 'count', version: '2' });
});

it('its tasks are read, and text that is no JSON is quoted in the error', async () => {
  const lists = (tasks: string) =>
    serve({ '/count/num_tasks': '{"num_tasks":1.0}', '/count/task_range': tasks }).then((url) =>
      readServerTasks(url, 'count', 'train', quiet),
    );
  expect(await lists('{"tasks":[{"prompt":"Count.","best":Infinity}]}')).toEqual([
    { task_key: 'count/train/0', prompt: 'Count.', env_key: 'count', reset: { split: 'train', index: 0 } },
  ]);
  await expect(lists('{"tasks":[')).rejects.toThrow(/answers task_range with 200, and not with JSON/);
});
