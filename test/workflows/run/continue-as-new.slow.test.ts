// What a run keeps over continue-as-new, which happens here after every step.
import { ApplicationFailure } from '@temporalio/common';
import type { Worker } from '@temporalio/worker';
import { testWorker } from '../../support/test-worker.js';
import { describe, expect, it, vi } from 'vitest';
import type { RunStatus } from '../../../src/activities/contracts.js';
import {
  grantedSignal,
  resumeUpdate,
  revokedSignal,
  setHyperparametersUpdate,
  statusQuery,
  waitingSignal,
} from '../../../src/workflows/messages.js';
import type { trainingRun } from '../../../src/workflows/run/training-run.js';
import { startTemporal } from '../../support/servers/temporal-server.js';
import {
  gate,
  grpoPhases,
  quiet,
  type ScriptedRun,
  startRun,
  uniqueName,
  uniqueScript,
  until,
  untilItWaitsFor,
  useTemporal,
  withRun,
  withWorkers,
  workflowBundle,
} from '../scripted-run.js';

const restsOrEnds = ({ phase }: RunStatus): boolean => ['blocked', 'completed'].includes(phase);

// The server waits a second between two executions of a workflow, so all tests run at the same time.
describe.concurrent('a run that continues as new after every step', () => {
  const dynamicConfig = { 'limit.historyCount.suggestContinueAsNew': 20 };
  const temporal = useTemporal(() => startTemporal({ dynamicConfig }));

  const opens = (script: ScriptedRun): number => script.calls.filter((call) => call === 'open').length;

  const runOf = (steps: number): ScriptedRun => {
    const phases = grpoPhases(steps);
    return uniqueScript('anew', { phases, ckpt_interval: 0, eval_interval: 0 });
  };

  /** A run in which the steps `from` to `to` change nothing, for the reason `reason`. */
  function unappliedRun(reason: string, from: number, to: number): ScriptedRun {
    const phases = grpoPhases(6);
    const script = uniqueScript('unapplied', { phases, ckpt_interval: 0 });
    const { updatePolicy } = script.activities;
    script.activities.updatePolicy = async (input) => ({
      ...(await updatePolicy(input)),
      ...(input.step >= from && input.step <= to ? { applied: false, reason } : {}),
    });
    return script;
  }

  it('waits for its upload first, and uploads no checkpoint twice', async () => {
    const phases = [{ name: 'drill', kind: 'sft' as const, steps: 4 }];
    const script = uniqueScript('upload', { phases, ckpt_interval: 1, eval_interval: 0 });
    const held = gate();
    script.before = (call) => (call === 'upload 1' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
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

  it('notices that a node was revoked before the next execution was open', async () => {
    const script = runOf(4);
    const [again, asked] = [gate(), new Array<string>()];
    script.grant = ({ lease }) => {
      asked.push(lease);
      return script.node;
    };
    script.before = (call) => (call === 'open' && opens(script) === 1 ? again.wait() : undefined);
    const told: string[] = [];
    const { collectRollouts, updatePolicy } = script.activities;
    script.activities.collectRollouts = (input) => {
      for (const { what } of input.interruptions ?? []) told.push(`collect ${what}`);
      return collectRollouts(input);
    };
    script.activities.updatePolicy = (input) => {
      for (const { what } of input.interruptions ?? []) told.push(`update ${what}`);
      return updatePolicy(input);
    };
    await withRun(temporal, script, async (run) => {
      await again.reached;
      const current = temporal.client.workflow.getHandle(run.workflowId);
      const [lease = ''] = asked;
      await current.signal(waitingSignal, { lease, cause: 'busy', why: 'it is held' });
      await current.signal(revokedSignal, { lease, node: script.node, reason: 'lost' });
      again.release();
      expect(await current.result()).toMatchObject({ step: 4 });
    });
    expect(asked).toHaveLength(2);
    expect(new Set(asked).size).toBe(2);
    expect(told.filter((one) => !one.endsWith('waited'))).toEqual(['collect node_lost']);
  });

  it('makes a checkpoint of the next state if a checkpoint failed before it continued (R17)', async () => {
    const phases = [{ name: 'drill', kind: 'sft' as const, steps: 4 }];
    const script = uniqueScript('failed', { phases, ckpt_interval: 2, eval_interval: 0 });
    script.before = (call) => {
      if (call === 'upload 2') throw ApplicationFailure.nonRetryable('it is not there', 'CheckpointGivenUp');
    };
    await withRun(temporal, script, (run) => run.result());
    expect(opens(script)).toBeGreaterThan(2);
    expect(script.uploaded).toEqual([3, 4]);
  });

  it('remembers how many steps in a row changed nothing', async () => {
    const script = unappliedRun('non_finite', 2, 4);
    await withRun(temporal, script, async (run) => {
      const { step, blocked } = await until(run, restsOrEnds);
      expect(step).toBe(4);
      expect(blocked?.reason).toContain('3 steps in a row changed nothing');
      expect(opens(script)).toBeGreaterThan(2);
      await run.executeUpdate(resumeUpdate);
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
  });

  it('tells the pool which nodes it releases before it continues as new', async () => {
    const script = runOf(1);
    const held = gate();
    script.before = (call) => (call === 'update 1' ? held.wait() : undefined);
    const taskQueue = uniqueName('orchestrator');
    const orchestrator = async (): Promise<Worker> =>
      testWorker({
        ...{ connection: temporal.connection, taskQueue, activities: script.activities },
        workflowBundle: await workflowBundle(),
      });
    await withWorkers(temporal, script, async () => {
      const run = await (
        await orchestrator()
      ).runUntil(async () => {
        const started = await startRun(temporal, taskQueue, script.outline.name);
        await held.reached;
        return started;
      });
      const { runId } = await run.describe();
      // The pool grants an unwanted node just as the step ends, so the run handles both at once.
      await run.signal(grantedSignal, { lease: 'given up', node: script.node });
      held.release();
      await quiet(script);
      await vi.waitFor(async () => expect((await run.describe()).raw.pendingActivities).toEqual([]), 120_000);
      await (await orchestrator()).runUntil(run.result());
      const { events } = await temporal.client.workflow.getHandle(run.workflowId, runId).fetchHistory();
      expect(events?.at(-1)?.workflowExecutionContinuedAsNewEventAttributes).toBeTruthy();
      // There is no pool here, so these requests are answered with an error.
      const answers = events?.flatMap(
        (event) => event.signalExternalWorkflowExecutionFailedEventAttributes ?? [],
      );
      expect(answers).toHaveLength(1);
    });
  });

  it('records an Update once if it is sent again after continue-as-new, and gives the same answer', async () => {
    const script = runOf(2);
    const held = { first: gate(), later: gate() };
    script.before = (call) => ({ 'collect 1': held.first, 'collect 2': held.later })[call]?.wait();
    await withRun(temporal, script, async (run) => {
      const handle = temporal.client.workflow.getHandle<typeof trainingRun>(run.workflowId);
      const send = () =>
        handle.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.25 }], updateId: 'sent twice' });
      await held.first.reached;
      const answer = await send();
      held.first.release();
      await held.later.reached;
      expect(opens(script)).toBeGreaterThan(1);
      expect(await send()).toEqual(answer);
      held.later.release();
      await run.result();
    });
    expect(script.control.n).toBe(1);
  });

  it('answers and records every Update once, before, during or after continue-as-new', async () => {
    const script = runOf(6);
    const last = gate();
    script.before = (call) => (call === 'collect 6' ? last.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      const handle = temporal.client.workflow.getHandle<typeof trainingRun>(run.workflowId);
      let sent = 0;
      // A run that has ended refuses Updates; this run does not end before the last one is answered.
      while ((await handle.query(statusQuery)).step < 5) {
        sent += 1;
        const answer = await handle.executeUpdate(setHyperparametersUpdate, {
          args: [{ lr: sent / 1e4 }],
          updateId: `change-${sent}`,
        });
        expect(answer).toMatchObject({ n: sent, lr: sent / 1e4 });
      }
      last.release();
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
      expect(opens(script)).toBeGreaterThan(3);
      expect(sent).toBeGreaterThan(3);
      expect(script.control.n).toBe(sent);
    });
  });

  it('does not ask a person if several steps in a row had nothing to learn from', async () => {
    const script = unappliedRun('no_signal', 2, 5);
    await withRun(temporal, script, async (run) => {
      const { step, phase } = await until(run, restsOrEnds);
      expect({ step, phase }).toEqual({ step: 6, phase: 'completed' });
    });
  });
});
