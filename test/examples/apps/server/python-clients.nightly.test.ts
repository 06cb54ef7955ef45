// The Python package's own clients use our server.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EnvironmentServer } from '../../../../examples/apps/server/environment-server.js';
import { pythonWith } from '../../../support/python/python-environments.js';
import { startCounterServer, token, worlds } from '../../../environments/stand-in.js';

const python = await pythonWith('openenv');

describe.skipIf(!python)('openenv 0.10.0', () => {
  let server: EnvironmentServer;
  let seen: Record<'generic' | 'mcp' | 'cut', Record<string, unknown>>;
  beforeAll(async () => {
    server = await startCounterServer();
    const script = fileURLToPath(new URL('./drive_server.py', import.meta.url));
    const { stdout } = await promisify(execFile)(python, [script, server.url, 'counter/up/2', token], {
      timeout: 120_000,
    });
    seen = JSON.parse(stdout) as typeof seen;
  });
  afterAll(() => server?.close());

  it('GenericEnvClient plays an episode', () => {
    expect(seen.generic).toEqual({
      prompt: 'Count to 2.',
      task_key: 'counter/up/2',
      reward: null,
      tools: ['increment', 'refuse', 'crash', 'shout'],
      text: '1',
      error: 'unknown tool jump',
      state: { episode_id: 'ep', step_count: 2, task_key: 'counter/up/2', env_key: 'counter' },
      invalid: expect.stringContaining('VALIDATION_ERROR'),
    });
  });

  it('MCPToolClient plays an episode in a single session over HTTP and a socket', () => {
    expect(seen.mcp).toEqual({
      tools: [
        ['increment', true],
        ['refuse', true],
        ['crash', true],
        ['shout', true],
      ],
      first: '1',
      second: '2',
      steps: 2,
      error: "Tool 'refuse' failed: repository x not found",
    });
  });

  it('MCPToolClient continues in the same session when its socket is cut', () => {
    expect(seen.cut).toEqual({
      before: '1',
      detached: '2',
      steps: 2,
      another_socket: true,
      after: '3',
    });
  });

  it('leaves no session and no world behind', () => {
    expect(server.stats().sessions).toBe(0);
    expect(worlds.open).toBe(0);
  });
});
