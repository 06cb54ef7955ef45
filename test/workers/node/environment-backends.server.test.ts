// A node keeps one backend for each environment server and its settings, with the limits of a run's spec.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import type { EnvironmentSpec } from '../../../src/spec/run-spec.js';
import {
  environmentBackends,
  type EnvironmentBackends,
} from '../../../src/workers/node/environment-backends.js';
import { counterTask, noFaults, startCounterServer, token } from '../../environments/stand-in.js';

const spec: EnvironmentSpec = { env_key: 'counter' };

let server: EnvironmentServer;
let backends: EnvironmentBackends;
beforeEach(async () => {
  // The server never answers the call of turn 1.
  const faults = { ...noFaults, infrastructure: ({ turn }: { turn: number }) => hangAt(turn) };
  server = await startCounterServer({ faults, faultRate: 0.5 });
  backends = environmentBackends({ url: server.url, token });
});
afterEach(async () => {
  await backends.close();
  await server.close();
});

const hangAt = (turn: number): 'hang' | undefined => (turn === 1 ? 'hang' : undefined);

/** Makes a call that is never answered; returns how long the backend waited, in milliseconds. */
async function waitOut(callTimeoutMs: number): Promise<number> {
  const backend = backends.backendFor(spec, callTimeoutMs);
  const options = { seed: 1, episodeId: `${callTimeoutMs}`, tryNumber: 0 };
  const environment = await backend.open(counterTask(1), options, new AbortController().signal);
  const started = performance.now();
  await expect(
    environment.callTool({ name: 'increment', arguments: {} }, { turn: 1, tryNumber: 0 }),
  ).rejects.toMatchObject({
    reason: 'timeout',
    message: expect.stringContaining(`within ${callTimeoutMs} ms`) as string,
  });
  await environment.close();
  return performance.now() - started;
}

describe('a call that the server answers too late', () => {
  it('times out after the run’s limit', async () => {
    expect(await waitOut(300)).toBeLessThan(15_000);
  });

  it('times out for each run after that run’s own limit', async () => {
    // Each error names its limit. There is no upper bound here: a slow machine may take longer.
    const [hasty, patient] = await Promise.all([waitOut(200), waitOut(900)]);
    expect(hasty).toBeGreaterThanOrEqual(199);
    expect(patient).toBeGreaterThanOrEqual(899);
  });
});

it('all episodes of a run share one backend, whether or not its spec names the kind', () => {
  expect(backends.backendFor({ ...spec }, 500)).toBe(backends.backendFor(spec, 500));
  expect(backends.backendFor({ ...spec, kind: 'openenv' }, 500)).toBe(backends.backendFor(spec, 500));
});

it('an episode that must play alone is alone on its server, even among backends with other settings', async () => {
  const signal = AbortSignal.timeout(5_000);
  const options = { seed: 1, episodeId: 'e', tryNumber: 0 };
  const other = backends.backendFor(spec, 700);
  const suspicious = backends.backendFor({ ...spec, url: `${server.url}/` }, 500);
  // After this session, the backend needs only one more reply to open the next.
  await (await suspicious.open(counterTask(1), options, signal)).close();
  const company = await other.open(counterTask(1), options, signal);
  let closed = false;
  const alone = suspicious.open(counterTask(1), { ...options, alone: true }, signal).then((environment) => {
    expect(closed).toBe(true);
    return environment;
  });
  const later = other.open(counterTask(1), options, signal);
  for (let call = 0; call < 50; call++) {
    await company.callTool({ name: 'increment', arguments: {} }, { turn: 0, tryNumber: 0 });
  }
  closed = true;
  await company.close();
  await (await alone).close();
  await (await later).close();
});
