// A server that becomes another one in mid-run is noticed at the step (R25).
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { alertsOfRun } from '../../../src/report/alerts.js';
import { stepsOfChanges } from '../../../src/rl/environment-changes.js';
import type { UpdateRecord } from '../../../src/spec/records/update.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import {
  type ForeignFacts,
  type ForeignServer,
  startForeignServer,
} from '../../environments/foreign-server.js';
import { lastSftStep, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';

useHarness();
let foreign: ForeignServer;
let facts: ForeignFacts;
beforeEach(async () => {
  facts = { tool: 'look', version: '1' };
  const rewardOf = (episodeId: string): string => (/\.000\.json/.test(episodeId) ? '1' : '0');
  foreign = await startForeignServer(rewardOf, () => true, facts);
  await harness.open({ ...harness.spec, environments: [{ env_key: 'tracker', url: foreign.url }] });
  await harness.advance(lastSftStep);
});
afterEach(() => foreign.close());

async function nextStep(n: number): Promise<UpdateRecord> {
  await harness.advance(lastSftStep + n);
  return readUpdate(harness.store, run, lastSftStep + n);
}

describe('a server that changes in mid-run', () => {
  it.each([
    [{ version: '2' }, ['version 1 → 2']],
    [{ tool: 'peek' }, ['other tools']],
  ])('to %j is recorded at the step, and people are told', async (change: ForeignFacts, changes) => {
    const first = await nextStep(1);
    expect(first.observed.environments).toMatchObject({ tracker: { name: 'foreign', version: '1' } });
    const second = await nextStep(2);
    expect(second.observed.environments).toEqual(first.observed.environments);
    Object.assign(facts, change);
    const third = await nextStep(3);
    const updates = [first, second, third, await nextStep(4)];
    expect(stepsOfChanges(updates)).toEqual([lastSftStep + 3]);
    const { record } = await harness.orchestrator.runs.get(run);
    const found = alertsOfRun(record, updates).filter(({ alert }) => alert.about === 'environment_changed');
    expect(found).toMatchObject([{ steps: [lastSftStep + 3], alert: { environment: 'tracker', changes } }]);
  });
});
