// An opening never does without a server that instances of this environment have.
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { McpSession } from '../../../../src/environments/fleet/mcp-session.js';
import type { KnownPlaces } from '../../../../src/environments/fleet/server-places.js';
import { startStubMcp, type StubMcp } from './stub-server.js';

const quiet = new AbortController().signal;
const both = { mcp: ['book'], 'api/v1/mcp': ['computer', 'profile'] };
const gateOnly = { 'api/v1/mcp': ['computer', 'profile'] };
let stub: StubMcp;
beforeEach(async () => {
  stub = await startStubMcp();
});
afterEach(() => stub.close());

const listed = async (known: KnownPlaces, more = {}) => {
  const session = await McpSession.open(stub.root, 'key', quiet, known, {
    ...{ listWithinMs: 20_000, unknownMs: 2_000, connectMs: 5_000, ...more },
  });
  await session.close();
  return session.tools.map(({ name }) => name);
};
const after = async (ms: number, tools: Record<string, string[]>) => {
  await delay(ms);
  stub.tools = tools;
};

it('waits for an app that an earlier instance had, however long it starts', async () => {
  const known: KnownPlaces = new Map();
  stub.tools = both;
  expect(await listed(known)).toEqual(['book', 'profile']);
  stub.tools = gateOnly;
  const [late] = await Promise.all([listed(known), after(9_000, both)]);
  expect(late).toEqual(['book', 'profile']);
});

it('fails where the app of earlier instances does not come, or lists nothing', async () => {
  const limits = { listWithinMs: 1_500, unknownMs: 100 };
  for (const tools of [gateOnly, { ...both, mcp: [] }]) {
    stub.tools = tools;
    await expect(listed(new Map([['mcp', 'present']]), limits)).rejects.toMatchObject({
      ...{ kind: 'failed', reason: 'open', message: expect.stringContaining('all its tools') as string },
    });
  }
});

it('does without a missing server after a long wait, but notices one that starts later', async () => {
  const known: KnownPlaces = new Map();
  stub.tools = gateOnly;
  expect(await listed(known)).toEqual(['profile']);
  // Two openings that begin together learn nothing from each other.
  await Promise.all([listed(known), listed(known)]);
  expect(known.get('mcp')).toBe(3);
  // Now as long as six tries take.
  expect(await listed(known, { listWithinMs: 20_000, unknownMs: 60_000 })).toEqual(['profile']);
  stub.tools = both;
  expect(await listed(known)).toEqual(['book', 'profile']);
  expect(known.get('mcp')).toBe('present');
});
