// The search for another node than the one that disagrees with a record (R19).
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createOrchestratorActivities } from '../../src/activities/orchestrator-activities.js';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import { type Harness, run, startEnvironments, startHarness } from './fixture.js';

let environments: EnvironmentServer;
let harness: Harness;
beforeAll(async () => {
  environments = await startEnvironments();
});
afterAll(() => environments.close());
beforeEach(async () => {
  harness = await startHarness(environments);
});
afterEach(() => harness.close());

function find(alive: string[], besides?: string): Promise<{ node: string } | null> {
  const aliveNodes = () => Promise.resolve(alive.map((id) => ({ id })));
  const { findNode } = createOrchestratorActivities({ ...harness.orchestrator, aliveNodes });
  return harness.attempt('place/elsewhere', () => findNode({ run, ...(besides && { besides }) }));
}

describe('another node', () => {
  it.each([
    ['before the run has a base', -1],
    ['of a run with a base', 0],
  ])('is never the one that is named: %s', async (_, held) => {
    await harness.open();
    await (held < 0 ? undefined : harness.advance(held));
    expect(await find(['first', 'second'])).toEqual({ node: 'first' });
    expect(await find(['first', 'second'], 'first')).toEqual({ node: 'second' });
    expect(await find(['first', 'second'], 'second')).toEqual({ node: 'first' });
    expect(await find(['first'], 'first')).toBeNull();
  });
});
