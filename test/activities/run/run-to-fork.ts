// A run of five steps to fork and rewind. Every step changes the state, and an Update changed the learning rate before the fourth step.
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import type { OpenedRun } from '../../../src/activities/contracts.js';
import { DatasetCache } from '../../../src/data/dataset-cache.js';
import { forkSpec } from '../../../src/activities/run/fork-run.js';
import { openRun } from '../../../src/activities/run/open-run.js';
import type { OrchestratorDeps } from '../../../src/activities/orchestrator-deps.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { recordControl } from '../../../src/activities/run/record-control.js';
import { RunDataCache } from '../../../src/data/run-data.js';
import { saveState, uploadCheckpoint } from '../../../src/activities/step/save-state.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import type { ForkSpec, RunSpec } from '../../../src/spec/run-spec.js';
import { episodeKey } from '../../../src/store/record-keys.js';
import type { OpenedStore } from '../../../src/store/runs/episodes.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { lastCommittedStep, readState } from '../../../src/store/runs/run-records.js';
import { activityId, reviseRecord, run, workflow } from '../fixture.js';
import { harness, useSharedHarness } from '../own-harness.js';
import { overlaid } from '../../store/overlaid-store.js';

export { harness } from '../own-harness.js';

export const last = 5;
export const lrFromStep4 = 3e-3;
export let scratch: string;
let pristine: string;

/** Makes one run for all tests of a file. The state after its second step is in the store. */
export function useRunToFork(): void {
  useSharedHarness();
  beforeAll(async () => {
    scratch = mkdtempSync(join(tmpdir(), 'longhaul-forks-'));
    pristine = join(scratch, 'pristine');
    await harness.advance(2);
    await harness.attempt('save', () => saveState(harness.node, { run, step: 2, owner: 1 }));
    await harness.attempt('upload', () => uploadCheckpoint(harness.node, { run, step: 2, owner: 1 }));
    await advance(run, 1, 3);
    const change = { kind: 'setHyperparameters', lr: lrFromStep4 } as const;
    await recordControl(harness.orchestrator, { run, owner: 1, updateId: 'u1', change });
    await advance(run, 1, last, 1);
    cpSync(join(harness.folder, 'store'), pristine, { recursive: true, preserveTimestamps: true });
  });
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));
}

export async function advance(of: string, owner: number, to: number, control = 0): Promise<void> {
  const { node, orchestrator } = harness;
  for (let next = (await lastCommittedStep(harness.store, of)) + 1; next <= to; next++) {
    const reference = { run: of, step: next, owner };
    const planned = await planStep(orchestrator, { ...reference, control });
    const input = { ...reference, plan: planned.plan };
    if (planned.kind === 'grpo')
      await harness.attempt(activityId(next, 'collect'), () =>
        collectRollouts(node, { ...input, slots: [0, planned.slots] }),
      );
    if (planned.kind === 'grpo') await pass(of, next);
    await harness.attempt(activityId(next, 'update'), () => updatePolicy(node, input));
  }
}

/**
 * Grades one episode of a step as passed, because the barely trained policy never passes. Without a pass, the step would not change the
 * state.
 */
async function pass(of: string, number: number): Promise<void> {
  await reviseRecord(harness.store, episodeKey(of, number, number % 2, 0), 'episode', (episode) => ({
    ...episode,
    outcome: { status: 'graded', value: 1 },
  }));
}

/** Opens a run as a worker over `store` does; each name has its own workflow. */
export function open(
  spec: RunSpec,
  store: ObjectStore = harness.store,
  other: Partial<OrchestratorDeps> = {},
): Promise<OpenedRun> {
  const datasets = new DatasetCache(store);
  const deps = {
    ...harness.orchestrator,
    store,
    datasets,
    runs: new RunDataCache(store, datasets),
    ...other,
  };
  return openRun(deps, { spec, workflow: { ...workflow, workflowId: `train/${spec.name}` } });
}

export async function fork(name: string, from: ForkSpec, change: (spec: RunSpec) => void = () => undefined) {
  const spec = await forkSpec(harness.store, name, from);
  change(spec);
  return { spec, opened: await open(spec) };
}

/** A copy of the store before any fork. */
export async function copy(): Promise<OpenedStore> {
  const folder = mkdtempSync(join(scratch, 'copy-'));
  cpSync(pristine, folder, { recursive: true, preserveTimestamps: true });
  return openStore(`dir:${folder}`);
}

export const statesOf = (of: string, steps: number[], store = harness.store) =>
  Promise.all(steps.map((number) => readState(store, of, number)));

export async function messageOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toMatchObject({ name: 'InvalidSpec' });
  return (error as Error).message;
}

/** A store that fails when object number `writes` + 1 is created. */
export function dyingAfter(store: ObjectStore, writes: number): ObjectStore {
  let left = writes;
  const create: ObjectStore['create'] = async (key, bytes) => {
    if (left === 0) throw new Error('killed');
    const answer = await store.create(key, bytes);
    if (answer === 'created') left -= 1;
    return answer;
  };
  return overlaid(store, { create });
}
