// What a run keeps when it starts anew: here it does so after every step.
import { ApplicationFailure } from '@temporalio/common';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunStatus } from '../../src/activities/contracts.js';
import { resumeUpdate, setHyperparametersUpdate, statusQuery } from '../../src/workflows/messages.js';
import type { trainingRun } from '../../src/workflows/training-run.js';
import { startTemporal, type TestTemporal } from '../support/temporal-server.js';
import {
  gate,
  outlineOf,
  type ScriptedRun,
  scriptRun,
  startRun,
  uniqueName,
  until,
  untilItWaitsFor,
  withWorkers,
  workflowBundle,
} from './scripted-run.js';

const restsOrEnds = ({ phase }: RunStatus): boolean => ['blocked', 'completed'].includes(phase);

// The server puts a second between two executions of a workflow: all at once.
describe.concurrent('a run that starts anew after every step', { timeout: 60_000 }, () => {
  let temporal: TestTemporal;
  beforeAll(async () => {
    const dynamicConfig = { 'limit.historyCount.suggestContinueAsNew': 20 };
    [temporal] = await Promise.all([startTemporal({ dynamicConfig }), workflowBundle()]);
  }, 60_000);
  afterAll(() => temporal?.stop());

  const opens = (script: ScriptedRun): number => script.calls.filter((call) => call === 'open').length;

  /** Its steps `from` to `to` change nothing, because of `reason`. */
  function unappliedRun(reason: string, from: number, to: number): ScriptedRun {
    const phases = [{ name: 'grpo', kind: 'grpo' as const, steps: 6 }];
    const script = scriptRun(outlineOf(uniqueName('unapplied'), { phases, ckpt_interval: 0 }));
    const { updatePolicy } = script.activities;
    script.activities.updatePolicy = async (input) => ({
      ...(await updatePolicy(input)),
      ...(input.step >= from && input.step <= to ? { applied: false, reason } : {}),
    });
    return script;
  }

  it('waits for its upload first, and takes no checkpoint twice', async () => {
    const phases = [{ name: 'drill', kind: 'sft' as const, steps: 4 }];
    const script = scriptRun(outlineOf(uniqueName('upload'), { phases, ckpt_interval: 1, eval_interval: 0 }));
    const held = gate();
    script.before = (call) => (call === 'upload 1' ? held.wait() : undefined);
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
      await held.reached;
      await untilItWaitsFor(run, ['step-000001/upload']);
      const before = opens(script);
      expect(script.calls.at(-1)).toBe('update 2');
      held.release();
      await run.result();
      expect(opens(script)).toBeGreaterThan(before);
    });
    const uploads = script.calls.filter((call) => call.startsWith('upload '));
    expect(uploads).toEqual(['upload 1', 'upload 2', 'upload 3', 'upload 4']);
  });

  it('takes the checkpoint that failed before it from the next state: the newest is what counts (R17)', async () => {
    const phases = [{ name: 'drill', kind: 'sft' as const, steps: 4 }];
    const script = scriptRun(outlineOf(uniqueName('failed'), { phases, ckpt_interval: 2, eval_interval: 0 }));
    script.before = (call) => {
      if (call === 'upload 2') throw ApplicationFailure.nonRetryable('it is not there', 'CheckpointGivenUp');
    };
    await withWorkers(temporal, script, async (queue) => {
      await (await startRun(temporal, queue, script.outline.name)).result();
    });
    expect(opens(script)).toBeGreaterThan(2);
    expect(script.uploaded).toEqual([3, 4]);
  });

  it('remembers how many steps in a row changed nothing', async () => {
    const script = unappliedRun('non_finite', 2, 4);
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
      const { step, blocked } = await until(run, restsOrEnds, 40_000);
      expect(step).toBe(4);
      expect(blocked?.reason).toContain('3 steps in a row changed nothing');
      expect(opens(script)).toBeGreaterThan(2);
      await run.executeUpdate(resumeUpdate);
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
  });

  it('answers every update, whether it comes before, in or after a new beginning, and records each once', async () => {
    const script = unappliedRun('no_signal', 0, 0);
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
      const handle = temporal.client.workflow.getHandle<typeof trainingRun>(run.workflowId);
      const over = { value: false };
      const ended = run.result().finally(() => (over.value = true));
      let sent = 0;
      // The last ones meet a run that has ended; until it is at its last step, none is lost.
      while (!over.value && (await handle.query(statusQuery)).step < 5) {
        sent += 1;
        const answer = await handle.executeUpdate(setHyperparametersUpdate, {
          args: [{ lr: sent / 1e4 }],
          updateId: `change-${sent}`,
        });
        expect(answer).toMatchObject({ n: sent, lr: sent / 1e4 });
      }
      expect(await ended).toMatchObject({ ended: 'completed', step: 6 });
      expect(opens(script)).toBeGreaterThan(3);
      expect(sent).toBeGreaterThan(3);
      expect(script.control.n).toBe(sent);
    });
  });

  it('asks nobody where steps in a row had nothing to learn from', async () => {
    const script = unappliedRun('no_signal', 2, 5);
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
      const { step, phase } = await until(run, restsOrEnds, 40_000);
      expect({ step, phase }).toEqual({ step: 6, phase: 'completed' });
    });
  });
});
