// What anybody may do to a single activity with the stock CLI: end it by hand, in form or out of it.
import { ApplicationFailure } from '@temporalio/common';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { resumeUpdate, setHyperparametersUpdate } from '../../../src/workflows/messages.js';
import { sharedTemporal } from '../../support/servers/shared-temporal.js';
import type { ConnectedTemporal } from '../../support/servers/temporal-server.js';
import {
  gate,
  outlineOf,
  scriptRun,
  startRun,
  uniqueName,
  until,
  withWorkers,
  workflowBundle,
} from '../scripted-run.js';

/** Calls of the script in the order of a run, and the activities that they are. */
const moments = [
  ['base', 'step-000000/base'],
  ['plan 2', 'step-000002/plan'],
  ['evaluate interval 2', 'step-000002/evaluate-interval'],
  ['collect 4', 'step-000004/collect'],
  ['update 5', 'step-000005/update'],
  ['report', 'report'],
] as const;

describe('an activity that somebody ends by hand', { timeout: 120_000 }, () => {
  let temporal: ConnectedTemporal;
  beforeAll(async () => {
    [temporal] = await Promise.all([sharedTemporal(), workflowBundle()]);
  }, 60_000);
  afterAll(() => temporal?.stop());

  /** Ends each of the moments' activities once with `end`, sees the run blocked by it, and resumes it. */
  async function endedByHand(
    name: string,
    end: (activity: { workflowId: string; activityId: string }) => Promise<void>,
    says: (activityId: string) => string,
  ): Promise<void> {
    const outline = outlineOf(uniqueName(name), { phases: [{ name: 'grpo', kind: 'grpo', steps: 6 }] });
    const script = scriptRun(outline);
    const gates = new Map(moments.map(([call]) => [call as string, gate()]));
    script.before = async (call) => {
      const held = gates.get(call);
      gates.delete(call);
      await held?.wait();
    };
    const held = new Map(gates);
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, outline.name);
      for (const [call, activityId] of moments) {
        await held.get(call)?.reached;
        await end({ workflowId: run.workflowId, activityId });
        const { blocked } = await until(run, ({ phase }) => phase === 'blocked');
        expect(blocked?.reason).toContain(says(activityId));
        expect(blocked?.remedy).toContain(`longhaul resume ${outline.run}`);
        held.get(call)?.release();
        await run.executeUpdate(resumeUpdate);
      }
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
    for (let step = 1; step <= 6; step++) expect(script.committed.has(step)).toBe(true);
  }

  it.each([
    ['nothing', null],
    ['an answer that is not its own', { done: true }],
  ])(
    'and completes with %s blocks the run, says so, and is done by itself after resume',
    async (_, answer) => {
      await endedByHand(
        'completed',
        (activity) => temporal.client.activity.complete(activity, answer),
        (id) => `${id} was completed by hand with ${JSON.stringify(answer)}`,
      );
    },
  );

  it('and fails without a reason blocks the run, names the activity, and is done by itself after resume', async () => {
    await endedByHand(
      'failed',
      // As `temporal activity fail` does.
      (activity) => temporal.client.activity.fail(activity, ApplicationFailure.nonRetryable('')),
      (id) => `${id} was failed by hand, and no reason was given`,
    );
  });

  it('while it records a change fails the Update that waits for it, and nothing else', async () => {
    const script = scriptRun(outlineOf(uniqueName('control')));
    const [held, collecting] = [gate(), gate()];
    script.before = (call) => ({ 'control setHyperparameters': held, 'collect 3': collecting })[call]?.wait();
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
      await collecting.reached;
      const answer = run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.01 }] });
      answer.catch(() => undefined);
      await held.reached;
      await temporal.client.activity.complete(
        { workflowId: run.workflowId, activityId: 'control/1' },
        'done',
      );
      await expect(answer).rejects.toMatchObject({
        cause: { message: expect.stringContaining('control/1 was completed by hand') as string },
      });
      held.release();
      collecting.release();
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
  });
});
