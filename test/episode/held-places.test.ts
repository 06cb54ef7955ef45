// A server whose places other sessions hold is not down, and starting it would not help.
import { expect, it } from 'vitest';
import { EnvironmentError } from '../../src/environments/environment.js';
import { outageClock } from '../../src/episode/outage-clock.js';

const clock = (maxWaitMs: number) =>
  outageClock({ healthy: () => Promise.resolve(true) }, 'shop', { maxWaitMs });
const quiet = new AbortController().signal;

it('held places are named, with a remedy of their own', async () => {
  const cause = new EnvironmentError('unavailable', 'capacity', 'http://h: at capacity: 2/2 sessions active');
  await expect(clock(0).waitUntilHealthy(cause, quiet)).rejects.toMatchObject({
    name: 'EnvironmentsUnavailable',
    message: expect.stringMatching(
      /^All places of the environment server of shop .* none was freed \(http:\/\/h: at capacity/,
    ) as string,
    remedy: expect.stringMatching(/^Close the clients that hold the places/) as string,
  });
  await expect(clock(1000).waitUntilHealthy(cause, quiet)).resolves.toBeUndefined();
});

it('a server that is down keeps the general remedy', async () => {
  const cause = new EnvironmentError('unavailable', 'connect', 'no connection');
  const error = await clock(0)
    .waitUntilHealthy(cause, quiet)
    .catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ name: 'EnvironmentsUnavailable', remedy: null });
});
