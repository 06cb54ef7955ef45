// A stack's environment server that could not have the port that presets name: who starts a run must learn of it.
import { expect, test } from 'vitest';
import { environmentLines } from '../../../src/cli/stack/up-command.js';
import { openEnvKind } from '../../../src/environments/openenv/openenv-kind.js';
import { createSemaphore } from '../../../src/environments/semaphore.js';

const [usual, moved] = ['http://127.0.0.1:8030', 'http://127.0.0.1:8032'];

test('`longhaul up` prints the settings that presets then need', () => {
  expect(environmentLines(null)).toEqual([]);
  expect(environmentLines(usual)).toEqual([`  environments  ${usual}`]);
  const text = environmentLines(moved).join('\n');
  expect(text).toContain(`data.tasks='openenv+${moved}/…' environments.0.url=${moved}`);
});

test('a node without the token of the server that the spec names says which server is its own', () => {
  const spec = { env_key: 'tracker', url: usual, grading_token_env: 'TOKEN_THAT_IS_NOT_SET' };
  const host = { url: moved, token: 'own', placesOf: () => createSemaphore(1) };
  expect(() => openEnvKind.backend(spec, 1000, host)).toThrow(
    `not set for the worker; the spec names ${usual}, and this node’s own server is ${moved}`,
  );
  expect(() => openEnvKind.backend({ ...spec, url: moved }, 1000, host)).not.toThrow();
});
