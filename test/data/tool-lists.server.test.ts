// The tools that a start requests from environments: a server may come up a little later than the run.
import { afterEach, expect, it } from 'vitest';
import { toolListsFor } from '../../src/data/tool-lists.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import type { EnvironmentServer } from '../../examples/apps/server/environment-server.js';
import type { EnvironmentSpec } from '../../src/spec/run-spec.js';
import type { Demonstration } from '../../src/spec/records/task.js';
import { startForeignServer } from '../environments/foreign-server.js';
import { startHttpWorld } from '../environments/http-world.js';
import { counter, counterTask, startCounterServer } from '../environments/stand-in.js';

let server: EnvironmentServer | undefined;
afterEach(() => server?.close());

const shown: Demonstration = {
  ...{ kind: 'teacher', env_key: 'counter', env_variables: {} },
  messages: [
    { role: 'user', content: 'Count to 1.' },
    { role: 'assistant', content: '<done>' },
  ],
};
const environmentAt = (url: string): EnvironmentSpec => ({
  ...{ env_key: 'counter', url },
});
const ask = (url: string, options: Parameters<typeof toolListsFor>[3]) =>
  toolListsFor([shown], [counterTask(1)], [environmentAt(url)], options);

/** An address on which no server listens. */
async function nobody(): Promise<string> {
  const gone = await startForeignServer(() => '0');
  await gone.close();
  return gone.url;
}

it('tools come from a server that comes up after the first request', async () => {
  const url = await nobody();
  const asking = ask(url, { withinMs: 10_000 });
  // This connection was refused after the first request was sent, so the first request was refused too.
  await expect(fetch(url)).rejects.toThrow();
  server = await startCounterServer({ port: Number(new URL(url).port) });
  const { counter: tools } = await asking;
  expect(tools?.map(({ name }) => name)).toEqual(counter.tools.map(({ name }) => name));
});

it('tools are refused with the last reason if the server stays away for the whole time', async () => {
  const url = await nobody();
  const started = performance.now();
  await expect(ask(url, { withinMs: 700 })).rejects.toMatchObject({
    name: 'InvalidSpec',
    message: expect.stringMatching(
      /environments\[0\]: the tools .* cannot be listed: .*no connection .*ECONNREFUSED.*; start the server/,
    ) as string,
  });
  expect(performance.now() - started).toBeGreaterThanOrEqual(690);
});

it('tools are refused at once if the server answers that it cannot list them', async () => {
  server = await startCounterServer();
  const { url } = server;
  const task = { ...counterTask(1), task_key: 'counter/sideways' };
  const started = performance.now();
  await expect(toolListsFor([shown], [task], [environmentAt(url)])).rejects.toThrow(
    /cannot be listed: .*open failed/,
  );
  expect(performance.now() - started).toBeLessThan(5_000);
});

it('tools of a server with one world are listed without a reset, which would end the episode that plays there', async () => {
  const world = await startHttpWorld(['/health', '/schema', '/reset', '/step', '/state', '/mcp']);
  const asked: string[] = [];
  const listed = { name: 'look', description: 'Looks.', inputSchema: { type: 'object', properties: {} } };
  world.answer = (path) => {
    asked.push(path);
    if (path === '/schema') return { status: 200, body: { action: { title: 'CallToolAction' } } };
    if (path !== '/mcp') return null;
    return { status: 200, body: { jsonrpc: '2.0', id: 1, result: { tools: [listed] } } };
  };
  const { counter: tools } = await ask(world.url, {});
  await world.close();
  expect(tools?.map(({ name }) => name)).toEqual(['look']);
  expect(asked).not.toContain('/reset');
  expect(asked).not.toContain('/step');
});

it('the wait for tools ends when the start is cancelled', async () => {
  const stop = new AbortController();
  const asking = ask(await nobody(), { signal: stop.signal });
  const cancelled = new Error('the run was cancelled');
  stop.abort(cancelled);
  await expect(asking).rejects.toBe(cancelled);
});

it('tools that a server could not list once are requested again by the next episode', async () => {
  let lists = 0;
  const flaky = await startForeignServer(
    () => '0',
    () => ++lists > 1,
  );
  const backend = createOpenEnvBackend({ url: flaky.url, maxSessions: 4 });
  const open = () =>
    backend.open(counterTask(1), { seed: 1, episodeId: 'e', tryNumber: 0 }, AbortSignal.timeout(5_000));
  try {
    await expect(open()).rejects.toMatchObject({
      kind: 'failed',
      message: expect.stringContaining('no tools') as string,
    });
    const environment = await open();
    expect(environment.tools.map(({ name }) => name)).toEqual(['look']);
    await environment.close();
  } finally {
    await backend.close();
    await flaky.close();
  }
});
