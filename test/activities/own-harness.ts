// Provides a harness to a test file: one for each test, or one for all tests.
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { EnvironmentServer } from '../../examples/apps/server/environment-server.js';
import { type Harness, startEnvironments, startHarness } from './fixture.js';
import { attemptsFolder } from '../../src/store/record-keys.js';
import { keysOf } from '../store/overlaid-store.js';
import { requireRecord } from '../../src/store/records/records.js';

export let environments: EnvironmentServer;
export let harness: Harness;

/** Gives each test of a file its own harness; they share one environment server. */
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

/** Replaces a closed harness with a new one. */
export async function startAnother(): Promise<void> {
  harness = await startHarness(environments);
}

/** The failures recorded by the attempts of a step: for each, its verb and the fields of its message. */
export async function keptFailures(run: string, step: number, activity = ''): Promise<object[]> {
  const keys = await keysOf(harness.store, `${attemptsFolder(run, step)}${activity}`);
  const records = await Promise.all(keys.map((key) => requireRecord(harness.store, key, 'attempt')));
  return records.flatMap(({ failures = [] }) =>
    failures.map(({ verb, message }) => ({ verb, ...(JSON.parse(message) as object) })),
  );
}

function useEnvironments(): void {
  beforeAll(async () => {
    environments = await startEnvironments();
  });
  afterAll(() => environments.close());
}
