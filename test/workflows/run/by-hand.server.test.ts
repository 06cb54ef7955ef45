// Anybody may end a single activity with the `temporal` CLI, with a valid or an invalid result.
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { resumeUpdate, setHyperparametersUpdate } from '../../../src/workflows/messages.js';
import { gate, grpoPhases, uniqueScript, until, useTemporal, withRun } from '../scripted-run.js';

/** The script's calls in the order of a run, and their activities. */
const moments = [
  ['base', 'step-000000/base'],
  ['plan 2', 'step-000002/plan'],
  ['evaluate interval 2', 'step-000002/evaluate-interval'],
  ['collect 4', 'step-000004/collect'],
  ['update 5', 'step-000005/update'],
  ['report', 'report'],
] as const;

describe('an activity that a person ends by hand', () => {
  const temporal = useTemporal();

  /** Ends each activity of `moments` once with `end`, expects the run to be blocked by it, and resumes the run. */
  async function endedByHand(
    name: string,
    end: (activity: { workflowId: string; activityId: string }) => Promise<void>,
    says: (activityId: string) => string,
  ): Promise<void> {
    const script = uniqueScript(name, { phases: grpoPhases(6) });
    const gates = new Map(moments.map(([call]) => [call as string, gate()]));
    script.before = async (call) => {
      const held = gates.get(call);
      gates.delete(call);
      await held?.wait();
    };
    const held = new Map(gates);
    await withRun(temporal, script, async (run) => {
      for (const [call, activityId] of moments) {
        await held.get(call)?.reached;
        await end({ workflowId: run.workflowId, activityId });
        const { blocked } = await until(run, ({ phase }) => phase === 'blocked');
        expect(blocked?.reason).toContain(says(activityId));
        expect(blocked?.remedy).toContain(`longhaul resume ${script.outline.run}`);
        held.get(call)?.release();
        await run.executeUpdate(resumeUpdate);
      }
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
    for (let step = 1; step <= 6; step++) expect(script.committed.has(step)).toBe(true);
  }

  it.each([
    ['nothing', null],
    ['a result of the wrong shape', { done: true }],
  ])(
    'when completed with %s: the run is blocked, names the result, and repeats the activity after resume',
    async (_, answer) => {
      await endedByHand(
        'completed',
        (activity) => temporal.client.activity.complete(activity, answer),
        (id) => `${id} was completed by hand with ${JSON.stringify(answer)}`,
      );
    },
  );

  it('when failed without a reason: the run is blocked, names the activity, and repeats it after resume', async () => {
    await endedByHand(
      'failed',
      // Like `temporal activity fail`.
      (activity) => temporal.client.activity.fail(activity, ApplicationFailure.nonRetryable('')),
      (id) => `${id} was failed by hand without a reason`,
    );
  });

  it('makes only its own Update fail if it records a change', async () => {
    const script = uniqueScript('control');
    const [held, collecting] = [gate(), gate()];
    script.before = (call) => ({ 'control setHyperparameters': held, 'collect 3': collecting })[call]?.wait();
    await withRun(temporal, script, async (run) => {
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
