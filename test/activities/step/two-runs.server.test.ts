// One node serves two runs in turn. The figures of one run do not depend on what the other run does meanwhile.
import { beforeEach, describe, expect, it } from 'vitest';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import { commitBase } from '../../../src/activities/step/commit-base.js';
import type { CommittedStep } from '../../../src/activities/contracts.js';
import { keepLastCommit } from '../../../src/activities/step/upload-last-commit.js';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import { openRun } from '../../../src/activities/run/open-run.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { saveState } from '../../../src/activities/step/save-state.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { faultsIn, isFault } from '../../../src/store/runs/fault-figures.js';
import { readAttemptsIn } from '../../../src/store/runs/step-attempts.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import { activityId, lastSftStep, run, workflow } from '../fixture.js';
import { harness, passed, planned, setOutcome, step, update, useGrpoStep } from './grpo-step.js';

const other = { name: 'other', owner: 1 };

useGrpoStep();

async function takeStepOfOther(): Promise<void> {
  await openRun(harness.orchestrator, {
    // With an equal seed, its states would be the same as the first run's.
    spec: { ...harness.spec, name: other.name, seed: 6 },
    workflow: { ...workflow, workflowId: `train/${other.name}` },
  });
  const at = { run: other.name, owner: other.owner };
  await harness.attempt('base', () => commitBase(harness.node, at));
  const { plan } = await planStep(harness.orchestrator, { ...at, step: 1, control: 0 });
  await harness.attempt('update', () => updatePolicy(harness.node, { ...at, step: 1, plan }));
}

describe('a step of one run, while another run commits and saves on the same node', () => {
  let committed: CommittedStep;
  let timings: Record<string, number>;
  beforeEach(async () => {
    await takeStepOfOther();
    const { answer } = await planned();
    const rollouts = harness.rollouts(answer);
    await harness.attempt('collect', () => collectRollouts(harness.node, { ...rollouts, keep: true }));
    await setOutcome(0, 0, passed);
    const ofOther = { run: other.name, step: 1, owner: other.owner };
    await harness.attempt('save', () => saveState(harness.node, ofOther));
    committed = await update(answer);
    timings = (await readUpdate(harness.store, run, step)).observed.timings_ms;
  });

  it('is timed since its own run’s last commit, and all of that time counts for its budget', () => {
    expect(timings['step']).toBeGreaterThan(timings['in_flight'] ?? Infinity);
    expect(timings['in_flight']).toBeGreaterThan(timings['policy_train'] ?? Infinity);
    expect(committed.spent?.gpu_seconds).toBeCloseTo((timings['in_flight'] ?? NaN) / 1000, 9);
  });

  it('records how long it waited for its own save', () => {
    expect(timings).toHaveProperty('checkpoint_stall');
  });

  it('is the node’s last commit, so the node uploads its state when it leaves', async () => {
    expect(await keepLastCommit(harness.node, new AbortController().signal)).toEqual({ run, step });
  });
});

describe('a state that another run has replaced in the engine', () => {
  it('is restored; the attempt records that, but not as a fault', async () => {
    const { collectRollouts: collect } = createNodeActivities(harness.node);
    const { answer } = await planned();
    const input = harness.reference(answer);
    const name = activityId(step, 'collect');
    await harness.attempt(`${name}-0`, () => collect({ ...input, slots: [0, 1] }));
    await takeStepOfOther();
    await harness.attempt(`${name}-1`, () => collect({ ...input, slots: [1, 2] }));
    const attempts = await readAttemptsIn(harness.store, run, step);
    const recoveries = attempts.flatMap(({ observed }) => observed.recoveries ?? []);
    expect(recoveries).toMatchObject([
      { cause: 'engine_shared', lost: { tokens: 0, episodes: 0 }, replay: { steps: lastSftStep } },
    ]);
    expect(recoveries.filter(isFault)).toEqual([]);
    expect(faultsIn(attempts)).not.toHaveProperty('ft/restarts/engine_shared');
  });
});
