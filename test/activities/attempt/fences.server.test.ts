// An activity of an older owner ends before it writes anything (R20): every activity that writes reads the newest owner first.
import { beforeEach, describe, expect, it } from 'vitest';
import { collectGarbage } from '../../../src/activities/run/collect-garbage.js';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import { commitBase } from '../../../src/activities/step/commit-base.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { planWave } from '../../../src/activities/step/plan-wave.js';
import { recordControl } from '../../../src/activities/run/record-control.js';
import { saveState, uploadCheckpoint } from '../../../src/activities/step/save-state.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { lastSftStep, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';
import { createNodeActivities, createTransferActivities } from '../../../src/activities/node-activities.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import { keysOf } from '../../store/overlaid-store.js';

useHarness();
beforeEach(async () => {
  const dynamic_sampling = { type: 'filter', max_sample_batches: 2 };
  Object.assign(harness.spec['trainer'] as object, { dynamic_sampling });
  await harness.open();
});

/** Brings the run to a place where the activity has something to write, and returns the activity. */
type Prepared = () => Promise<() => Promise<unknown>>;

const owner = 1;
const writers: Record<string, Prepared> = {
  commitBase: async () => () => commitBase(harness.node, { run, owner }),
  recordControl: async () => () =>
    recordControl(harness.orchestrator, { run, owner, updateId: 'u1', change: { kind: 'pause' } }),
  planStep: async () => {
    await harness.advance(0);
    return () => planStep(harness.orchestrator, { run, step: 1, owner, control: 0 });
  },
  collectRollouts: async () => {
    await harness.advance(lastSftStep);
    const reference = harness.reference(await harness.plan(lastSftStep + 1));
    return () => collectRollouts(harness.node, { ...reference, slots: [0, 2] });
  },
  planWave: async () => {
    await harness.advance(lastSftStep);
    const answer = await harness.plan(lastSftStep + 1);
    const reference = harness.reference(answer);
    await harness.attempt('collect', () =>
      collectRollouts(harness.node, { ...reference, slots: [0, answer.slots] }),
    );
    return () => planWave(harness.orchestrator, { ...reference, wave: 1 });
  },
  updatePolicy: async () => {
    await harness.advance(0);
    const reference = harness.reference(await harness.plan(1));
    return () => updatePolicy(harness.node, reference);
  },
  evaluateState: async () => {
    await harness.advance(1);
    return () => evaluateState(harness.node, { run, step: 1, owner, suite: 'interval' });
  },
  collectGarbage: async () => {
    await harness.advance(1);
    return () => collectGarbage(harness.orchestrator, { run, step: 1, owner });
  },
  saveState: async () => {
    await harness.advance(1);
    return () => saveState(harness.node, { run, step: 1, owner });
  },
  uploadCheckpoint: async () => {
    await harness.advance(1);
    await harness.attempt('save', () => saveState(harness.node, { run, step: 1, owner }));
    return () => uploadCheckpoint(harness.node, { run, step: 1, owner });
  },
};

/** A sweep writes only evaluations into a run; whichever run or sweep evaluates first writes them. */
const ofSweeps = ['planSweep', 'pairsToDo', 'evaluatePair', 'compareSweep'];
/** A dataset belongs to no run. */
const ofDatasets = ['gatherDataset', 'teachTasks', 'gateTasks', 'finishDataset'];
/**
 * These activities need no owner: openRun claims the run, requestLease and closedRuns only ask, and writeReport derives its files from
 * records.
 */
const ownerless = ['openRun', 'requestLease', 'closedRuns', 'writeReport', ...ofSweeps, ...ofDatasets];

const keys = (): Promise<string[]> => keysOf(harness.store);

describe('an activity of an older owner', () => {
  it.each(Object.entries(writers))('writes nothing: %s', async (name, prepare) => {
    const activity = await prepare();
    await harness.takeOver();
    const before = await keys();
    await expect(harness.attempt(name, activity)).rejects.toMatchObject({ name: 'OwnerChanged' });
    expect(await keys()).toEqual(before);
    expect(await harness.node.holder.keeper.states.list(run)).toHaveLength(
      name === 'uploadCheckpoint' ? 1 : 0,
    );
  });

  it.each(Object.entries(writers))(
    'would have written something without the newer owner: %s',
    async (name, prepare) => {
      const activity = await prepare();
      const before = await keys();
      await harness.attempt(name, activity);
      const states = await harness.node.holder.keeper.states.list(run);
      expect((await keys()).length + states.length).toBeGreaterThan(before.length);
    },
  );

  it('is tested above unless it needs no owner: no activity is missing', () => {
    const all = {
      ...createOrchestratorActivities(harness.orchestrator),
      ...createNodeActivities(harness.node),
      ...createTransferActivities(harness.node),
    };
    expect(Object.keys(all).sort()).toEqual([...Object.keys(writers), ...ownerless].sort());
  });
});
