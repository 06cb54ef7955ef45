// A record that breaks in the middle of a step, from the block to the committed step, with real activities on a real server.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import type { RunStatus } from '../../../src/activities/contracts.js';
import { createNodeActivities, createTransferActivities } from '../../../src/activities/node-activities.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import { quarantine } from '../../../src/cli/store/quarantine-command.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { batchKey, episodeKey, planKey } from '../../../src/store/record-keys.js';
import { readState } from '../../../src/store/runs/run-records.js';
import { grantedSignal, resumeUpdate } from '../../../src/workflows/messages.js';
import {
  type Harness,
  lastSftStep,
  run,
  startEnvironments,
  startHarness,
  tamper,
} from '../../activities/fixture.js';
import { sharedTemporal } from '../../support/servers/shared-temporal.js';
import type { ConnectedTemporal } from '../../support/servers/temporal-server.js';
import { type AllActivities, startRun, until, withWorkers, workflowBundle } from '../scripted-run.js';

const last = 6;
const first = lastSftStep + 1;

/** When each record breaks: just before the activity that reads it. */
const breaks = [
  { key: planKey(run, first), before: 'collectRollouts', step: first },
  { key: batchKey(run, first + 1), before: 'updatePolicy', step: first + 1 },
  { key: episodeKey(run, first + 2, 1, 0), before: 'updatePolicy', step: first + 2 },
  // Without this plan, all episodes of the step are different.
  { key: planKey(run, last), before: 'updatePolicy', step: last },
] as const;

describe('a record that cannot be read', () => {
  let temporal: ConnectedTemporal;
  let environments: EnvironmentServer;
  let harness: Harness;
  let undisturbed: Harness;
  beforeAll(async () => {
    [temporal, environments] = await Promise.all([sharedTemporal(), startEnvironments(), workflowBundle()]);
  });
  afterAll(() => Promise.all([temporal.stop(), environments.close()]));
  beforeEach(async () => {
    [harness, undisturbed] = await Promise.all([startHarness(environments), startHarness(environments)]);
  });
  afterEach(() => Promise.all([harness.close(), undisturbed.close()]));

  /** The harness's own activities, which cut off each record once. */
  function activities(): AllActivities {
    const whole: AllActivities = {
      ...createOrchestratorActivities(harness.orchestrator),
      ...createNodeActivities(harness.node),
      ...createTransferActivities(harness.node),
    };
    const left = new Set(breaks);
    const breaking = async (activity: string, step: number): Promise<void> => {
      for (const one of left) {
        if (one.before !== activity || one.step !== step) continue;
        left.delete(one);
        // The batch is written by the activity that breaks on it, so an earlier attempt must have written it.
        if (one.key === batchKey(run, step)) await harness.store.create(one.key, new Uint8Array(400));
        await tamper(harness.store, one.key, (bytes) => bytes.subarray(0, 20));
      }
    };
    const { collectRollouts, updatePolicy } = whole;
    return {
      ...whole,
      requestLease: ({ lease, workflowId }) =>
        temporal.client.workflow
          .getHandle(workflowId)
          .signal(grantedSignal, { lease, node: harness.node.node }),
      collectRollouts: (input) => breaking('collectRollouts', input.step).then(() => collectRollouts(input)),
      updatePolicy: (input) => breaking('updatePolicy', input.step).then(() => updatePolicy(input)),
    };
  }

  it('blocks its step until it is quarantined; then the step reaches the weights of an undisturbed run', async () => {
    const workers = { node: harness.node.node, activities: activities() };
    const result = await withWorkers(temporal, workers, async (queue) => {
      const workflow = await startRun(temporal, queue, run, harness.spec);
      for (const { key, step } of breaks) {
        const names = ({ phase, blocked }: RunStatus): boolean =>
          phase === 'blocked' && blocked?.reason.includes(`record ${key} is unreadable`) === true;
        const status = await until(workflow, names);
        expect(status.step).toBe(step - 1);
        expect(status.blocked?.remedy).toBe(
          `Restore ${key} from a copy, or set it aside with \`longhaul quarantine ${key}\`. Then: longhaul resume ${run}`,
        );
        expect(await quarantine(harness.store, key)).toMatchObject({ run, written: true });
        await workflow.executeUpdate(resumeUpdate);
      }
      return workflow.result();
    });
    expect(result).toMatchObject({ ended: 'completed', step: last });
    const { violations } = await auditRun(harness.store, run);
    expect(violations).toEqual([]);
    expect(await undisturbed.advance(last)).toMatchObject({ state: result.state });
    expect(await readState(harness.store, run, last)).toBe(result.state);
  });
});
