// A harness for the tests of a file: one for each test, or one for all of them.
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import { type Harness, startEnvironments, startHarness } from './fixture.js';

export let environments: EnvironmentServer;
export let harness: Harness;

/** Gives each test of a file a harness, on one environment server. */
export function useHarness(): void {
  useEnvironments();
  beforeEach(startAnother);
  afterEach(() => harness.close());
}

/** Gives all tests of a file, or of a `describe`, one harness. */
export function useSharedHarness(): void {
  useEnvironments();
  beforeAll(startAnother);
  afterAll(() => harness.close());
}

/** Puts a new harness in the place of one that is closed. */
export async function startAnother(): Promise<void> {
  harness = await startHarness(environments);
}

function useEnvironments(): void {
  beforeAll(async () => {
    environments = await startEnvironments();
  });
  afterAll(() => environments.close());
}
