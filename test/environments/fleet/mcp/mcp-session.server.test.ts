// What a session does with a server that answers with errors, or not at all.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { McpSession } from '../../../../src/environments/fleet/mcp-session.js';
import { toolListText } from '../../../../src/episode/tool-list.js';
import { startStubMcp, type StubMcp } from './stub-server.js';

const quiet = new AbortController().signal;
let stub: StubMcp;
beforeEach(async () => {
  stub = await startStubMcp();
  stub.tools = { mcp: ['book'], 'api/v1/mcp': ['profile'] };
});
afterEach(() => stub.close());

async function answerTo(code: number): Promise<unknown> {
  const session = await McpSession.open(stub.root, 'key', quiet);
  stub.onCall = () => ({ error: { code, message: 'went wrong' } });
  try {
    return await session.call({ name: 'book', arguments: {} }, 10_000);
  } finally {
    await session.close();
  }
}

it.each([-32_000, -32_001, -32_099])('takes the code %i for a lost call', async (code) => {
  await expect(answerTo(code)).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
});

it.each([-32_602, -32_603, -31_999, 1])('shows the model an error with the code %i', async (code) => {
  expect(await answerTo(code)).toMatchObject({ isError: true });
});

it('ends a connection whose handshake is not answered, in its time or when the episode is called off', async () => {
  stub.hangs = true;
  const limits = { listWithinMs: 100, unknownMs: 100, connectMs: 300 };
  await expect(McpSession.open(stub.root, 'key', quiet, new Map(), limits)).rejects.toMatchObject({
    ...{ kind: 'failed', reason: 'open' },
  });
  await expect.poll(() => stub.ended).toBeGreaterThan(0);
  const stop = new AbortController();
  const opening = McpSession.open(stub.root, 'key', stop.signal);
  setTimeout(() => stop.abort(new Error('called off')), 300);
  await expect(opening).rejects.toThrow('called off');
});

it('shows the model the numbers of a tool list as the server wrote them', async () => {
  const id = '{"enum": [1915883588174806058], "default": 1.0, "minimum": 1e3}';
  stub.inputSchema = `{"type": "object", "properties": {"id": ${id}}}`;
  const session = await McpSession.open(stub.root, 'key', quiet);
  await session.close();
  const [book, profile] = ['book', 'profile'].map((name) => `${name}(id?: 1915883588174806058)`);
  expect(toolListText(session.tools, 'signatures')).toBe(`${book}\n${profile}`);
  const shown = toolListText(session.tools, 'json');
  for (const number of ['1915883588174806058', '"default": 1.0', '"minimum": 1e3'])
    expect(shown).toContain(number);
});
