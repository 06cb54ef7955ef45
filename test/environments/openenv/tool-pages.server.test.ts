// Tool lists as servers give them: in pages, with tools that have no name, and with tools that are listed twice.
import { afterEach, describe, expect, it } from 'vitest';
import { tryEnvironment } from '../../../src/cli/stack/environment-trial.js';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { openEnvKind } from '../../../src/environments/openenv/openenv-kind.js';
import { OpenEnvServer } from '../../../src/environments/openenv/openenv-server.js';
import { observationFrame, startScriptedServer } from '../scripted-server.js';
import { counterTask } from '../stand-in.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

/** `pages`: results of `tools/list` by cursor, that without a cursor as ''. */
async function namesOn(pages: (cursor: string) => unknown): Promise<string[]> {
  const server = await startScriptedServer({
    answers: () => [],
    routes: {
      '/mcp': (body) => {
        const { id, params } = body as { id: number; params: { cursor?: string } };
        return { jsonrpc: '2.0', id, result: pages(params.cursor ?? '') };
      },
    },
  });
  closers.push(() => server.close());
  const tools = await new OpenEnvServer({ url: server.url }).toolsWithoutEpisode(3000);
  return tools.map(({ name }) => name);
}

const page = (from: number, to: number, more: object = {}): object => ({
  tools: Array.from({ length: to - from }, (_, index) => ({ name: `t${from + index}`, inputSchema: {} })),
  ...more,
});

describe('pages of POST /mcp', () => {
  it.each(['nextCursor', 'next_cursor'])('are read to the end by %s', async (key) => {
    const pages: Record<string, object> = {
      '': page(0, 8, { [key]: 'a' }),
      a: page(8, 12, { [key]: 'b' }),
      b: page(12, 14, { [key]: null }),
    };
    expect(await namesOn((cursor) => pages[cursor])).toHaveLength(14);
  });

  it.each([
    ['the same again', () => 'a'],
    ['two in turn', (cursor: string) => (cursor === 'a' ? 'b' : 'a')],
  ])('end where a cursor comes again: %s', async (_, next) => {
    const names = await namesOn((cursor) => page(cursor === '' ? 0 : 5, 8, { nextCursor: next(cursor) }));
    expect(names).toEqual(['t0', 't1', 't2', 't3', 't4', 't5', 't6', 't7']);
  });

  it('are no list if one is missing', async () => {
    const broken = namesOn((cursor) => (cursor === '' ? page(0, 8, { nextCursor: 'a' }) : undefined));
    await expect(broken).rejects.toMatchObject({
      ...{ kind: 'unavailable', reason: 'connect' },
      message: expect.stringMatching(/lists its first 8 tools, and does not answer with more/) as string,
    });
  });

  it('are one list on a server without pages', async () => {
    expect(await namesOn(() => page(0, 3))).toEqual(['t0', 't1', 't2']);
    expect(await namesOn(() => ({ tools: null }))).toEqual([]);
  });
});

it.each(['episode', 'shared'] as const)(
  'tools are shown in one order, whatever the server lists first: %s',
  async (tools) => {
    let names = ['stop', 'look', 'go'];
    const server = await startScriptedServer({
      answers: ({ data }) => {
        const listed = names.map((name) => ({ name, inputSchema: {} }));
        return [observationFrame(data.type === 'list_tools' ? { tools: listed } : {}, 0)];
      },
      routes: { '/schema': () => ({ action: { title: 'CallToolAction' } }) },
    });
    closers.push(() => server.close());
    const newNode = () => {
      const backend = createOpenEnvBackend({ url: server.url, maxSessions: 1, tools });
      closers.unshift(() => backend.close());
      return async () => {
        const opening = { seed: 1, episodeId: 'e', tryNumber: 0 };
        const episode = await backend.open(counterTask(1), opening, AbortSignal.timeout(10_000));
        await episode.close();
        return episode.tools;
      };
    };
    const [one, other] = [newNode(), newNode()];
    const first = await one();
    expect(first.map(({ name }) => name)).toEqual(['go', 'look', 'stop']);
    names = ['go', 'stop', 'look'];
    expect(await one()).toBe(first);
    expect(await other()).toEqual(first);
    // The demonstrations of a dataset show what its episodes show.
    const spec = { env_key: 'x', url: server.url };
    const { signal } = new AbortController();
    expect(await openEnvKind.tools(spec, counterTask(1), { timeoutMs: 10_000, signal })).toEqual(first);
  },
);

it('env check says which tools of a list cannot be called', async () => {
  const tools = [{ name: 'look', inputSchema: { properties: { x: null, y: true } } }, { name: 'look' }, {}];
  const server = await startScriptedServer({
    answers: ({ data }) => [observationFrame(data.type === 'list_tools' ? { tools } : { result: 'x' }, 0)],
  });
  closers.push(() => server.close());
  const found = await tryEnvironment({ server: { url: server.url }, task: counterTask(1) });
  expect(found.slice(0, 2).map(({ detail }) => detail)).toEqual([
    'tools; over /ws, an episode for each socket\n' +
      'of the tools that it lists, 1 has no name, look is listed 2 times: a model is shown the first of each name',
    expect.stringMatching(/^look\(x, y\)\n/),
  ]);
  expect(found.every(({ ok }) => ok)).toBe(true);
});
