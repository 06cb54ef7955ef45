// A failure of the model counts only if the verifier gives it twice.
import { beforeEach, expect, it } from 'vitest';
import type { Environment } from '../../../../src/environments/environment.js';
import { fleetEpisode } from '../../../../src/environments/fleet/fleet-episode.js';
import type { FleetRequest } from '../../../../src/environments/fleet/fleet-request.js';
import type { InstanceApi } from '../../../../src/environments/fleet/instance-api.js';
import type { McpSession } from '../../../../src/environments/fleet/mcp-session.js';
import { Orchestrator } from '../../../../src/environments/fleet/orchestrator.js';
import type { Task } from '../../../../src/spec/records/task.js';

/** What the verifier gives next; the last is given for ever. */
let results: number[];
let executions: number;
beforeEach(() => {
  executions = 0;
});

const request: FleetRequest = (_, path) => {
  if (path.startsWith('/v1/verifiers/execute')) {
    executions += 1;
    const [result] = results.length > 1 ? results.splice(0, 1) : results;
    return Promise.resolve({ status: 200, body: { success: true, result, stdout: '' } });
  }
  return Promise.resolve({ status: 200, body: { success: true, status: 'running' } });
};

const quietApi = {
  queryAll: () => Promise.resolve(),
  queryDuring: <T>(verifier: Promise<T>) => verifier,
  queryAgain: () => Promise.resolve(),
} as unknown as InstanceApi;

function episode(): Environment {
  return fleetEpisode({
    ...{ task: { task_key: 'a', prompt: '' } as Task, code: 'def verify(env):\n  return 0\n', tools: [] },
    ...{ instanceId: 'i', api: quietApi, session: {} as McpSession, request },
    ...{ orchestrator: new Orchestrator(request), callTimeoutMs: 1000, endsAt: Infinity },
    onClose: () => Promise.resolve(),
  });
}

const grade = async () => (await episode().grade({ finalAnswer: '', tryNumber: 0 })).outcome.value;

it.each([
  ['takes a failure that is given twice', [0], 0, 2],
  ['takes a success that is given once', [1], 1, 1],
  ['asks again where a failure was not confirmed', [0, 1, 1], 1, 3],
])('%s', async (_, given, value, asked) => {
  results = given;
  expect(await grade()).toBe(value);
  expect(executions).toBe(asked);
});

it('gives no grade while the verifier gives alternating values', async () => {
  results = [0, 1, 0, 0.5, 0, 1];
  await expect(grade()).rejects.toMatchObject({ kind: 'failed', reason: 'unsteady' });
});
