// A record that steers a run is changed after the run's last plan, even with a matching checksum. The change is found: the run does not
// train with it, and the error names the record (R7, R24).
import { beforeEach, describe, expect, it } from 'vitest';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import { DatasetCache } from '../../../src/data/dataset-cache.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { recordControl } from '../../../src/activities/run/record-control.js';
import { RunDataCache } from '../../../src/data/run-data.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import {
  batchKey,
  controlFolder,
  ownersFolder,
  planKey,
  runKey,
  updateKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { lastSftStep, run, tamper } from '../fixture.js';
import { signedAgain } from '../../support/signed-again.js';
import { harness, useHarness } from '../own-harness.js';

const next = lastSftStep + 2;
useHarness();
beforeEach(async () => {
  await harness.open();
  await recordControl(harness.orchestrator, {
    ...{ run, owner: 1, updateId: 'a' },
    change: { kind: 'setHyperparameters', lr: 3e-4 },
  });
});

async function advance(last: number): Promise<void> {
  await harness.advance(0);
  for (let step = 1; step <= last; step++) {
    const planned = await harness.plan(step, 1);
    const reference = harness.rollouts(planned);
    if (planned.kind === 'grpo')
      await harness.attempt(`step-${step}/collect`, () => collectRollouts(harness.node, reference));
    await harness.attempt(`step-${step}/update`, () => updatePolicy(harness.node, reference));
  }
}

/** The store as a new process sees it, with nothing cached. */
async function restarted(): Promise<{ store: ObjectStore; runs: RunDataCache }> {
  const store = await openStore(harness.store.address);
  return { store, runs: new RunDataCache(store, new DatasetCache(store)) };
}

const change = (key: string, from: string, to: string, signed = true): Promise<void> =>
  tamper(harness.store, key, (bytes) => {
    const text = bytes.toString().replace(from, to);
    expect(text).not.toBe(bytes.toString());
    return signed ? signedAgain(text) : text;
  });

const steering = [
  { what: 'run.json', key: runKey(run), from: '"lr":0.001', to: '"lr":0.002', named: runKey(run) },
  {
    ...{ what: 'a control record', key: `${controlFolder(run)}1.json`, named: controlFolder(run) },
    ...{ from: '"lr":0.0003', to: '"lr":0.0001' },
  },
  {
    ...{ what: 'an owner record', key: `${ownersFolder(run)}1.json`, named: ownersFolder(run) },
    ...{ from: `train/${run}`, to: `train/${run}s` },
  },
];

describe.each(steering)(
  "$what, changed after the run's plans and given a matching checksum",
  ({ key, from, to, named }) => {
    const refused = { name: 'UnreadableRecord', key: named };

    it('is named when the next step is planned', async () => {
      await advance(next - 1);
      await change(key, from, to);
      const deps = { ...harness.orchestrator, ...(await restarted()) };
      const planning = planStep(deps, { run, step: next, owner: 1, control: 1 });
      await expect(planning).rejects.toMatchObject(refused);
      await expect(planning).rejects.toThrow(`when ${planKey(run, next - 1)} was made`);
      expect(await harness.store.head(planKey(run, next))).toBeNull();
    });

    it('is named when a planned step is played and applied', async () => {
      await advance(next - 1);
      const planned = await harness.plan(next, 1);
      await change(key, from, to);
      const deps = { ...harness.node, ...(await restarted()) };
      const reference = harness.rollouts(planned);
      const playing = harness.attempt('collect', () => collectRollouts(deps, reference));
      await expect(playing).rejects.toMatchObject(refused);
      const updating = harness.attempt('update', () => updatePolicy(deps, reference));
      await expect(updating).rejects.toMatchObject(refused);
      const again = planStep(
        { ...harness.orchestrator, ...(await restarted()) },
        { ...reference, control: 1 },
      );
      await expect(again).rejects.toMatchObject(refused);
      expect(await harness.store.head(batchKey(run, next))).toBeNull();
    });
  },
);

it('a plan that was changed before its step was committed is named and not used', async () => {
  await advance(next - 1);
  await harness.plan(next, 1);
  const key = planKey(run, next);
  await change(key, '"weight_decay":0.', '"weight_decay":2.', false);
  const again = planStep(
    { ...harness.orchestrator, ...(await restarted()) },
    { run, step: next, owner: 1, control: 1 },
  );
  await expect(again).rejects.toMatchObject({ name: 'UnreadableRecord', key });
  await expect(again).rejects.toThrow(/it was changed: .*weight_decay \(stored 2\./);
});

describe('the outcomes of an update', () => {
  const planning = async () =>
    planStep({ ...harness.orchestrator, ...(await restarted()) }, { run, step: next, owner: 1, control: 1 });
  const flipped = (bytes: Buffer): string => bytes.toString().replace(/"outcomes":\[\[0/, '"outcomes":[[1');

  it('stop the next plan if one bit of them was changed', async () => {
    await advance(next - 1);
    const key = updateKey(run, next - 1);
    await tamper(harness.store, key, flipped);
    await expect(planning()).rejects.toMatchObject({ name: 'UnreadableRecord', key });
  });
});
