// A control plane that does not carry out requests at once.
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { withoutKnownSecrets } from '../../../../src/base/known-secrets.js';
import { FleetInstances } from '../../../../src/environments/fleet/fleet-instances.js';
import type { FleetAnswer, FleetRequest } from '../../../../src/environments/fleet/fleet-request.js';
import { type Instance, Orchestrator } from '../../../../src/environments/fleet/orchestrator.js';

const order = { env_key: 'harbour', run_id: 'run', ttl_seconds: 60, heartbeat_interval: 300 };
const instance: Instance = { id: 'i', root: 'http://i/', manager: 'http://i/api', adopted: false };
const running = { status: 'running', urls: { root: 'http://i/', manager: { api: 'http://i/api' } } };
const duplicate = (id: object): FleetAnswer => ({
  status: 409,
  body: { detail: { error: 'duplicate_request_id', ...id } },
});

it('asks again for an instance that has no name yet', async () => {
  const answers = [duplicate({}), duplicate({ instance_id: null }), duplicate({ instance_id: 'i' })];
  const asked: (string | undefined)[] = [];
  const request: FleetRequest = (method, path, _, options) => {
    if (method !== 'POST' || path !== '/v1/env/instances')
      return Promise.resolve({ status: 200, body: running });
    asked.push(options?.requestId);
    return Promise.resolve(answers.shift() as FleetAnswer);
  };
  const { signal } = new AbortController();
  const made = await new Orchestrator(request).create(order, 'request-1', { signal });
  expect(made).toMatchObject({ id: 'i', adopted: true });
  expect(asked).toEqual(['request-1', 'request-1', 'request-1']);
});

it('counts an instance as gone once its heartbeats are missed, and goes on to delete it', async () => {
  let deletions = 0;
  const request: FleetRequest = () => {
    deletions += 1;
    return Promise.resolve({ status: 500, body: {} });
  };
  const owner = { name: 'node', log: () => undefined };
  const instances = new FleetInstances(new Orchestrator(request), owner, 100);
  await instances.end(instance);
  const before = deletions;
  await delay(1_000);
  expect(deletions).toBeGreaterThan(before);
});

it('hides a runner token of the environment that has white space around it', async () => {
  process.env.RUNNER_AUTH_TOKEN = ' token-in-white-space\n';
  try {
    const request: FleetRequest = () => Promise.reject(new Error('not asked'));
    expect(await new Orchestrator(request).runnerToken()).toBe('token-in-white-space');
    expect(withoutKnownSecrets('refused: token-in-white-space')).not.toContain('in-white');
  } finally {
    delete process.env.RUNNER_AUTH_TOKEN;
  }
});
