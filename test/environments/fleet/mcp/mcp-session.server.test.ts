// What a session does with a server that answers with errors, or not at all.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { McpSession } from '../../../../src/environments/fleet/mcp-session.js';
import { writeJson } from '../../../../src/base/json.js';
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

it.each([-32_000, -32_001, -32_099])('treats an answer with the code %i as a lost call', async (code) => {
  await expect(answerTo(code)).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
});

it.each([-32_602, -32_603, -31_999, 1])('shows the model an error with the code %i', async (code) => {
  expect(await answerTo(code)).toMatchObject({ isError: true });
});

it('ends a connection whose handshake has no answer, after the time limit or once the episode is cancelled', async () => {
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

it('lists tools of all pages with the numbers of their schemas as they were written', async () => {
  const schema = (name: string) =>
    `{"type":"object","properties":{"${name}":{"minimum":0.0,"default":1915883588174806058}}}`;
  const tool = (name: string) => `{"name":"${name}","description":null,"inputSchema":${schema(name)}}`;
  stub.toolsJson = [`[${tool('a')}]`, `[${tool('b')},{"description":"no name"}]`];
  const session = await McpSession.open(stub.root, 'key', quiet);
  await session.close();
  expect(session.tools.map((one) => writeJson(one.input_schema))).toEqual([schema('a'), schema('b')]);
});

it.each([
  ['{"content":[{"type":"text","text":"hi","annotations":{"priority":1.0}}]}', 'hi'],
  [
    '{"content":[{"type":"resource_link","name":"r","uri":"file:///r","size":12.0}]}',
    '[link: r, file:///r, 12 bytes]',
  ],
  ['{"content":[{"type":"text","text":null}]}', '{"type":"text","text":null}'],
  ['{"content":[{"type":"chart","points":[1.0]}]}', '{"type":"chart","points":[1.0]}'],
  ['{"content":null,"structuredContent":[1.0]}', '[1.0]'],
  ['{"content":null}', '{"content":null}'],
  ['{"value":1.0}', '{"value":1.0}'],
])('shows the model the result %s', async (result, text) => {
  const session = await McpSession.open(stub.root, 'key', quiet);
  stub.onCall = () => `{"result":${result}}`;
  const shown = await session.call({ name: 'book', arguments: {} }, 10_000);
  await session.close();
  expect(shown).toEqual({ content: [{ type: 'text', text }], isError: false });
});

it('returns the result even if its image cannot be decoded', async () => {
  const session = await McpSession.open(stub.root, 'key', quiet);
  stub.onCall = () => ({ result: { content: [{ type: 'image', mimeType: 'image/png', data: '***' }] } });
  const shown = await session.call({ name: 'book', arguments: {} }, 10_000);
  await session.close();
  expect(shown).toMatchObject({ content: [{ type: 'image', size: 0 }], isError: false });
});
