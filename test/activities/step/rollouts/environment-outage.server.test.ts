// R25: if an environment server is down, the step waits up to `max_wait_s`; then the run is blocked and says why.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createNodeActivities } from '../../../../src/activities/node-activities.js';
import {
  startEnvironmentProcess,
  type EnvironmentProcess,
} from '../../../support/servers/environment-process.js';
import { faultsIn } from '../../../../src/store/runs/fault-figures.js';
import { stepAttemptsReader } from '../../../../src/store/runs/step-attempts.js';
import { remedies } from '../../../../src/workflows/policies.js';
import { activityId, type Harness, lastSftStep, run, startHarness } from '../../fixture.js';

const step = lastSftStep + 1;

let server: EnvironmentProcess;
let harness: Harness;
beforeEach(async () => {
  server = await startEnvironmentProcess();
  harness = await startHarness(server);
});
afterEach(async () => {
  await harness.close();
  await server.kill('SIGKILL');
});

async function reachGrpo(max_wait_s: number): Promise<void> {
  const generator = { ...(harness.spec.generator as object), max_wait_s };
  await harness.open({ ...harness.spec, generator });
  await harness.advance(lastSftStep);
}

/** Collects through the activities that a worker registers, which turn errors into failures for the workflow. */
async function collect(attempt: number, progress: unknown[] = []): Promise<unknown> {
  const planned = await harness.plan(step);
  const { collectRollouts } = createNodeActivities(harness.node);
  return harness.attempt(
    activityId(step, 'collect'),
    () => collectRollouts(harness.rollouts(planned)),
    attempt,
    progress,
  );
}

describe('an environment server that is down', () => {
  it('for longer than max_wait_s ends the step with a clear failure; once the server is back, a resumed run continues', async () => {
    const maxWaitSeconds = 4;
    await reachGrpo(maxWaitSeconds);
    await server.kill('SIGKILL');
    const started = Date.now();
    await expect(collect(1)).rejects.toMatchObject({
      type: 'EnvironmentsUnavailable',
      nonRetryable: true,
      message: expect.stringMatching(
        new RegExp(`^The environment of tracker has been down for ${maxWaitSeconds} s \\(.*${server.url}`),
      ) as string,
    });
    expect(Date.now() - started).toBeGreaterThanOrEqual(1000 * maxWaitSeconds);
    expect(remedies.EnvironmentsUnavailable).toContain('longhaul doctor');
    expect(await harness.store.listFolder(`runs/${run}/steps/00000${step}/episodes/`)).toEqual([]);

    server = await startEnvironmentProcess(['--port', new URL(server.url).port]);
    expect(await collect(2)).toMatchObject({ graded: 4, unknown: 0 });
  });

  it('for a shorter time costs only the wait, which the heartbeat reports', async () => {
    // Longer than a busy machine needs to start the server again.
    await reachGrpo(600);
    await server.kill('SIGKILL');
    const begun = performance.now();
    const progress: unknown[] = [];
    const collecting = collect(1, progress);
    const waits = {
      waiting: 'tracker',
      waiting_reason: expect.stringContaining(server.url) as string,
      waiting_until: expect.any(Number) as number,
    };
    await vi.waitFor(() => expect(progress).toContainEqual(expect.objectContaining(waits)), {
      timeout: 120_000,
    });
    server = await startEnvironmentProcess(['--port', new URL(server.url).port]);
    expect(await collecting).toMatchObject({ graded: 4, unknown: 0 });
    expect(progress.at(-1)).not.toHaveProperty('waiting');
    const waited = faultsIn(await stepAttemptsReader(harness.store, run)(step))['ft/waiting_seconds']!;
    expect(waited).toBeGreaterThan(0.1);
    expect(waited).toBeLessThan((performance.now() - begun) / 1000);
  });
});
