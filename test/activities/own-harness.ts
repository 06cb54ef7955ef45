// A harness for the tests of a file: one for each test, or one for all of them.
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import { type Harness, startEnvironments, startHarness } from './fixture.js';
import { attemptsFolder } from '../../src/store/objects/layout.js';
import { keysOf } from '../store/overlaid-store.js';
import { requireRecord } from '../../src/store/records/records.js';

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

/** What the attempts of a step have kept of their failures, each as its verb and its message's members. */
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
