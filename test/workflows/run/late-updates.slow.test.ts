// Updates that arrive while a run continues as new: each Update is answered and recorded once, or refused with a reason; no Update is lost.
import { WorkflowNotFoundError } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { explained } from '../../../src/cli/command-refusals.js';
import { setHyperparametersUpdate } from '../../../src/workflows/messages.js';
import type { trainingRun } from '../../../src/workflows/run/training-run.js';
import { startTemporal } from '../../support/servers/temporal-server.js';
import {
  gate,
  grpoPhases,
  type ScriptedRun,
  uniqueScript,
  until,
  untilItWaitsFor,
  useTemporal,
  withRun,
} from '../scripted-run.js';

const opens = (script: ScriptedRun): number => script.calls.filter((call) => call === 'open').length;
const recorded = (script: ScriptedRun): number =>
  script.calls.filter((call) => call === 'control setHyperparameters').length;

describe('a run that continues as new after every step', () => {
  const dynamicConfig = { 'limit.historyCount.suggestContinueAsNew': 20 };
  const temporal = useTemporal(() => startTemporal({ dynamicConfig }));

  const runOf = (steps: number, ckpt_interval = 0): ScriptedRun => {
    const phases = grpoPhases(steps);
    return uniqueScript('late', { phases, ckpt_interval, eval_interval: 0 });
  };

  it('answers and records each Update of several senders once, at whatever moment it arrives', async () => {
    const script = runOf(6);
    await withRun(temporal, script, async (run) => {
      const handle = temporal.client.workflow.getHandle<typeof trainingRun>(run.workflowId);
      const over = { value: false };
      const ended = run.result().finally(() => (over.value = true));
      const answers: number[] = [];
      const refusals: string[] = [];
      const sender = async (name: string): Promise<void> => {
        for (let i = 1; !over.value; i += 1) {
          try {
            const args: [{ lr: number }] = [{ lr: i / 1e4 }];
            const updateId = `${name}-${i}`;
            answers.push((await handle.executeUpdate(setHyperparametersUpdate, { args, updateId })).n);
          } catch (error) {
            const { status } = await handle.describe();
            refusals.push(`${status.name}: ${(error as Error).message}`);
          }
        }
      };
      await Promise.all([sender('a'), sender('b'), sender('c'), ended]);
      expect(await ended).toMatchObject({ ended: 'completed', step: 6 });
      expect(opens(script)).toBeGreaterThan(3);
      expect(recorded(script)).toBe(script.control.n);
      expect(answers.length).toBe(script.control.n);
      expect(Math.max(...answers)).toBe(script.control.n);
      expect(answers.length).toBeGreaterThan(opens(script));
      // Only the last ones are refused, because the run has ended; the refusal says so.
      for (const refusal of refusals)
        expect(refusal).toMatch(/^COMPLETED: .*(complet|not found|closing workflow)/i);
    });
  });

  it('records a change that comes while it waits for the last upload before continue-as-new', async () => {
    const script = runOf(4, 1);
    const held = gate();
    script.before = (call) => (call === 'upload 1' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      await untilItWaitsFor(run, ['step-000001/upload']);
      const before = opens(script);
      expect(await run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.25 }] })).toMatchObject({
        n: 1,
      });
      expect(opens(script)).toBe(before);
      held.release();
      await run.result();
    });
    expect(recorded(script)).toBe(1);
    expect(script.committed.get(3)).toMatchObject({ control: 1, lr: 0.25 });
  });

  it('answers an Update that comes while the report is written, although all other work has ended', async () => {
    const script = runOf(1);
    const held = { report: gate(), record: gate() };
    script.before = (call) =>
      ({ report: held.report, 'control setHyperparameters': held.record })[call]?.wait();
    await withRun(temporal, script, async (run) => {
      await held.report.reached;
      const answer = run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.25 }] });
      await held.record.reached;
      held.report.release();
      await until(run, ({ phase }) => phase === 'completed');
      held.record.release();
      expect(await answer).toMatchObject({ n: 1, lr: 0.25 });
      expect(await run.result()).toMatchObject({ ended: 'completed' });
    });
    expect(recorded(script)).toBe(1);
  });

  it('refuses an Update to an ended execution, says what to do, and records nothing', async () => {
    const script = runOf(2);
    await withRun(temporal, script, async (run) => {
      await run.result();
      const { workflowId, firstExecutionRunId } = run;
      const first = temporal.client.workflow.getHandle<typeof trainingRun>(workflowId, firstExecutionRunId);
      const late = first.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.25 }] });
      await expect(late).rejects.toBeInstanceOf(WorkflowNotFoundError);
      await expect(explained(first, late)).rejects.toThrow(
        /has just continued as new: give the command again/,
      );
    });
    expect(recorded(script)).toBe(0);
  });
});
