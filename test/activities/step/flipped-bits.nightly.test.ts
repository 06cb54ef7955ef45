// 200 times, one random bit of run.json, control/ or owners/ is flipped, and the run is started again. It either refuses the record by
// name, or plans the same step as without the flip.
import { beforeAll, expect, test } from 'vitest';
import { DatasetCache } from '../../../src/data/dataset-cache.js';
import { openRun } from '../../../src/activities/run/open-run.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { recordControl } from '../../../src/activities/run/record-control.js';
import { RunDataCache } from '../../../src/data/run-data.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { uniform } from '../../../src/rl/random.js';
import { controlFolder, ownersFolder, planKey, runKey, sequenceKey } from '../../../src/store/record-keys.js';
import { openStore } from '../../../src/store/open-store.js';
import { readPlan } from '../../../src/store/runs/run-records.js';
import { run, tamper, workflow } from '../fixture.js';
import { harness, useSharedHarness } from '../own-harness.js';

const bits = 200;
const next = 2;
useSharedHarness();
beforeAll(async () => {
  await harness.open();
  await asked('a', 3e-4);
  // Plan one step under the first two records; no plan covers the later records.
  await harness.advance(0);
  const planned = await harness.plan(1, 1);
  await harness.attempt('step-000001/update', () => updatePolicy(harness.node, harness.reference(planned)));
  await asked('b', 2e-4);
  await harness.open();
});

async function asked(updateId: string, lr: number): Promise<void> {
  const change = { kind: 'setHyperparameters' as const, lr };
  await recordControl(harness.orchestrator, { run, owner: 1, updateId, change });
}

/** Starts again on the store as a new process: returns the plan of the next step, without the fields that name the new owner. */
async function startedAgain(): Promise<object> {
  const store = await openStore(harness.store.address);
  const datasets = new DatasetCache(store);
  const deps = { ...harness.orchestrator, store, datasets, runs: new RunDataCache(store, datasets) };
  const { owner } = await openRun(deps, { spec: harness.spec, workflow });
  try {
    await planStep(deps, { run, step: next, owner, control: 2 });
    const { owner: _owner, owner_digest: _digest, ...plan } = await readPlan(store, { run, step: next });
    return plan;
  } finally {
    await harness.store.delete(planKey(run, next));
    await harness.store.delete(sequenceKey(ownersFolder(run), owner));
  }
}

test(`each of ${bits} flipped bits is refused by name, or has no effect`, async () => {
  const keys = [
    runKey(run),
    ...[1, 2].map((n) => sequenceKey(controlFolder(run), n)),
    ...[1, 2].map((n) => sequenceKey(ownersFolder(run), n)),
  ];
  const undisturbed = await startedAgain();
  let refused = 0;
  for (let draw = 0; draw < bits; draw++) {
    const key = keys[draw % keys.length] as string;
    const whole = Buffer.from((await harness.store.get(key)) as Uint8Array);
    const bit = Math.floor(uniform(22, draw) * 8 * whole.length);
    const flipped = Buffer.from(whole);
    flipped[bit >> 3] = (flipped[bit >> 3] as number) ^ (1 << (bit & 7));
    await tamper(harness.store, key, () => flipped);
    const result = await startedAgain().catch((error: unknown) => error);
    await tamper(harness.store, key, () => whole);
    if (result instanceof Error) {
      refused += 1;
      expect({ draw, message: result.message }).toMatchObject({
        message: expect.stringContaining(key) as string,
      });
    } else expect({ draw, key, bit, plan: result }).toEqual({ draw, key, bit, plan: undisturbed });
  }
  console.log(`${refused} of ${bits} refused by name, ${bits - refused} without any effect`);
  expect(refused).toBeGreaterThan(bits / 2);
});
