// The course of a run: its steps in order, the changes that people make, and each way in which it ends.
import { setTimeout as delay } from 'node:timers/promises';
import { ApplicationFailure } from '@temporalio/common';
import { WorkflowFailedError, WorkflowUpdateFailedError } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import {
  pauseUpdate,
  resumeUpdate,
  setHyperparametersUpdate,
  statusQuery,
  stopAfterUpdate,
} from '../../../src/workflows/messages.js';
import type { Interruption } from '../../../src/activities/contracts.js';
import { targetNote } from '../../../src/workflows/status/run-text.js';
import {
  gate,
  quiet,
  startRun,
  uniqueScript,
  until,
  untilItWaitsFor,
  useTemporal,
  withRun,
  withWorkers,
} from '../scripted-run.js';

describe('trainingRun', () => {
  const temporal = useTemporal();

  it('opens, commits the base, evaluates, takes every step and writes a report', async () => {
    const script = uniqueScript('happy');
    const result = await withRun(temporal, script, (run) => run.result());
    expect(result).toMatchObject({
      ended: 'completed',
      step: 6,
      report: `runs/${script.outline.run}/report.html`,
    });
    expect(result.tokens).toBe(400);
    expect(result.evaluations.map(({ step, suite }) => `${suite} ${step}`)).toEqual([
      'interval 0',
      'final 2',
      'interval 4',
      'final 6',
    ]);
    const steps = script.calls.filter((call) => /^(plan|collect|update) /.test(call));
    expect(steps.slice(0, 4)).toEqual(['plan 1', 'update 1', 'plan 2', 'update 2']);
    expect(steps.slice(4, 7)).toEqual(['plan 3', 'collect 3', 'update 3']);
    expect(script.calls).toContain('upload 6');
    expect(script.calls.at(-1)).toBe('report');
  });

  it('continues from the records: a second start takes no step twice', async () => {
    const script = uniqueScript('again');
    await withRun(temporal, script, async (first, queue) => {
      await until(first, (status) => status.step >= 3);
      await first.terminate('the server lost it');
      // Its activities do not know that it died, so those in flight may still commit.
      await quiet(script);
      const before = Math.max(...script.committed.keys());
      script.calls.length = 0;
      const second = await startRun(temporal, queue, script.outline.name);
      await second.result();
      const updates = script.calls.filter((call) => call.startsWith('update '));
      expect(updates[0]).toBe(`update ${before + 1}`);
    });
    expect([...script.committed.keys()]).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });

  it('knows from the start the last checkpoint in its store, and makes no second checkpoint of that step', async () => {
    const script = uniqueScript('known');
    const held = gate();
    script.before = (call) => (call === 'plan 5' ? held.wait() : undefined);
    await withWorkers(temporal, script, async (queue) => {
      for (const step of [0, 1, 2, 3, 4]) script.committed.set(step, { control: 0, lr: 0.1 });
      script.uploaded.push(2, 4);
      const run = await startRun(temporal, queue, script.outline.name);
      await held.reached;
      expect((await run.query(statusQuery)).lastCheckpoint).toBe(4);
      held.release();
      await run.result();
    });
    expect(script.uploaded).toEqual([2, 4, 6]);
  });

  it('reports a late answer to the next activity on a node, but not to later activities', async () => {
    const script = uniqueScript('held-up');
    const { collectRollouts, updatePolicy } = script.activities;
    const told: string[] = [];
    const note = (call: string, interruptions: readonly Interruption[] = []): void =>
      void told.push(...interruptions.map(({ what, seconds }) => `${call} ${what} ${Math.round(seconds)}`));
    script.activities.collectRollouts = async (input) => {
      note(`collect ${input.step}`, input.interruptions);
      const answer = await collectRollouts(input);
      const ended_at = Date.now();
      // For four seconds after the activity has ended, the orchestrator is away.
      if (input.step === 4) await delay(4_000);
      return { ...answer, ended_at };
    };
    script.activities.updatePolicy = (input) => {
      note(`update ${input.step}`, input.interruptions);
      return updatePolicy(input);
    };
    await withRun(temporal, script, (run) => run.result());
    expect(told.filter((one) => !/ waited [0-3]$/.test(one))).toEqual([
      expect.stringMatching(/^update 4 waited [45]$/),
    ]);
  });

  it('collects the waves of a step, one after the other, before it updates; other steps have none', async () => {
    const script = uniqueScript('waves');
    const { planStep, collectRollouts, updatePolicy } = script.activities;
    const done: string[] = [];
    script.activities.planStep = async (input) => ({
      ...(await planStep(input)),
      ...(input.step === 4 ? { waves: true as const } : {}),
    });
    script.activities.planWave = ({ step, wave }) => {
      done.push(`wave ${wave} of ${step}`);
      return Promise.resolve({ from: wave + 3, to: wave === 3 ? 6 : wave + 4 });
    };
    script.activities.collectRollouts = (input) => {
      if (input.step >= 3) done.push(`collect ${input.step}: ${input.slots.join(' to ')}`);
      return collectRollouts(input);
    };
    script.activities.updatePolicy = (input) => {
      if (input.step >= 3) done.push(`update ${input.step}`);
      return updatePolicy(input);
    };
    await withRun(temporal, script, async (run) => {
      const { tokens } = (await run.result()) as { tokens: number };
      expect(tokens).toBeGreaterThan(0);
    });
    expect(done.slice(done.indexOf('collect 4: 0 to 4'), done.indexOf('update 4') + 1)).toEqual([
      ...['collect 4: 0 to 4', 'wave 1 of 4', 'collect 4: 4 to 5', 'wave 2 of 4', 'collect 4: 5 to 6'],
      ...['wave 3 of 4', 'update 4'],
    ]);
    expect(done.filter((one) => one.startsWith('wave'))).toHaveLength(3);
  });

  it('shows the faults’ cost that the newest plan reports', async () => {
    const script = uniqueScript('costs');
    const { planStep } = script.activities;
    script.activities.planStep = async (input) => ({
      ...(await planStep(input)),
      ...(input.step === 3 ? { faults: { 'ft/restarts/engine_exit': 1 } } : {}),
    });
    const held = gate();
    script.before = (call) => (call === 'collect 4' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      expect((await run.query(statusQuery)).faults).toEqual({ 'ft/restarts/engine_exit': 1 });
      held.release();
      await run.result();
    });
  });

  it('waits at a step boundary while paused, and uses a new lr from the next plan on', async () => {
    const script = uniqueScript('pause');
    const held = gate();
    script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      expect(await run.executeUpdate(pauseUpdate)).toMatchObject({ n: 1, paused: true });
      const changed = await run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.05 }] });
      expect(changed).toMatchObject({ n: 2, lr: 0.05 });
      held.release();
      const paused = await until(run, (status) => status.phase === 'paused');
      expect(paused.step).toBe(3);
      // Nothing is in flight and nothing is due: the workflow waits only for an Update.
      await untilItWaitsFor(run, []);
      expect(script.calls).not.toContain('plan 4');
      await run.executeUpdate(resumeUpdate);
      await run.result();
    });
    expect(script.committed.get(3)).toEqual({ control: 0, lr: 0.1 });
    expect(script.committed.get(4)).toEqual({ control: 3, lr: 0.05 });
  });

  it('never plans while a control record is being written', async () => {
    const script = uniqueScript('mutex');
    const [collecting, writing] = [gate(), gate()];
    script.before = (call) => {
      if (call === 'collect 3') return collecting.wait();
      return call === 'control setHyperparameters' ? writing.wait() : undefined;
    };
    await withRun(temporal, script, async (run) => {
      await collecting.reached;
      const answer = run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.01 }] });
      await writing.reached;
      collecting.release();
      await until(run, (status) => status.step === 3);
      // The step before has ended, so the workflow waits only for the record.
      await untilItWaitsFor(run, ['control/1']);
      expect(script.calls).not.toContain('plan 4');
      writing.release();
      expect(await answer).toMatchObject({ n: 1, lr: 0.01 });
      await run.result();
    });
    expect(script.committed.get(4)).toEqual({ control: 1, lr: 0.01 });
  });

  it('ends after the step that stopAfter names, and a new start goes past it', async () => {
    const script = uniqueScript('stop');
    const held = gate();
    script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
    await withRun(temporal, script, async (run, queue) => {
      await held.reached;
      await run.executeUpdate(stopAfterUpdate, { args: [{ step: 4 }] });
      held.release();
      const result = await run.result();
      expect(result).toMatchObject({ ended: 'stopped', step: 4 });
      expect(script.calls).toContain('upload 4');
      const again = await startRun(temporal, queue, script.outline.name);
      expect(await again.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
  });

  it('obeys a stop at a step that an earlier stop named', async () => {
    const script = uniqueScript('stop-again');
    for (const step of [0, 1, 2, 3]) script.committed.set(step, { control: 0, lr: 0.1 });
    script.control = { ...script.control, n: 1, stopAfter: 3 };
    const [held, stopping] = [gate(), gate()];
    script.before = (call) => {
      if (call === 'collect 5') return held.wait();
      return call === 'control stopAfter' ? stopping.wait() : undefined;
    };
    await withRun(temporal, script, async (run) => {
      await held.reached;
      expect((await run.query(statusQuery)).control.stopAfter).toBeNull();
      const stop = run.executeUpdate(stopAfterUpdate, { args: [{ step: 3 }] });
      await stopping.reached;
      const later = await run.startUpdate(setHyperparametersUpdate, {
        args: [{ lr: 0.05 }],
        waitForStage: 'ACCEPTED',
      });
      stopping.release();
      expect(await stop).toMatchObject({ n: 2, stopAfter: 3 });
      expect(await later.result()).toMatchObject({ n: 3, stopAfter: 3 });
      expect((await run.query(statusQuery)).control.stopAfter).toBe(3);
      held.release();
      expect(await run.result()).toMatchObject({ ended: 'stopped', step: 5 });
    });
  });

  it.each([
    ['no field', {}, /needs one of lr, /],
    ['an unknown field', { learning_rate: 1 }, /not learning_rate/],
    ['a text', { lr: '1e-4' }, /lr must be a number/],
    ['a negative rate', { lr: -1 }, /lr must be a number above 0 and at most 1, not -1$/],
    ['a temperature of 0', { temperature: 0 }, /temperature must be a number above 0 and at most 10, not 0$/],
    ['a clip range of 0', { eps_clip_high: 0 }, /eps_clip_high must be a number above 0, not 0$/],
    [
      'groups of one sample',
      { n_samples_per_prompt: 1 },
      /n_samples_per_prompt must be a whole number from 2 to 1000/,
    ],
    [
      'a number of groups that is not whole',
      { train_batch_size: 1.5 },
      /train_batch_size must be a whole number from 1 to 100000/,
    ],
    ['an interval of 0', { ckpt_interval: 0 }, /ckpt_interval must be a whole number from 1 to 1000000/],
    [
      'no turns',
      { eval_interval: 3, max_turns: 0 },
      /max_turns must be a whole number from 1 to 1000, not 0$/,
    ],
    [
      'more tokens than the model takes',
      { max_sequence_length: 513 },
      /max_sequence_length must be a whole number from 1 to 512, not 513$/,
    ],
    [
      'a weight that the loss does not have',
      { kl_loss_coef: 0.1 },
      /kl_loss_coef changes nothing.*no KL term/,
    ],
  ])('refuses setHyperparameters with %s and records nothing', async (_, values, message) => {
    const script = uniqueScript('refuse');
    const held = gate();
    script.before = (call) => (call === 'base' ? held.wait() : undefined);
    await withWorkers(temporal, script, async (queue) => {
      const model = { architecture: { max_position_embeddings: 512 } };
      const { name } = script.outline;
      const run = await startRun(temporal, queue, name, { name, model });
      await held.reached;
      const update = run.executeUpdate(setHyperparametersUpdate, { args: [values as { lr?: number }] });
      const failure = await update.then(
        () => null,
        (error: unknown) => error,
      );
      expect(failure).toBeInstanceOf(WorkflowUpdateFailedError);
      expect((failure as WorkflowUpdateFailedError).cause?.message).toMatch(message);
      await run.terminate();
    });
    expect(script.control.n).toBe(0);
  });

  it.each(['InvalidSpec', 'RunOwned'])('fails at once with %s and its whole message', async (type) => {
    const script = uniqueScript('invalid');
    const text = 'trainer.lr: must be a number; trainer.stepz: unknown, did you mean max_training_steps?';
    script.before = (call) => {
      if (call === 'open')
        throw ApplicationFailure.create({ message: text, type, nonRetryable: true, details: [1, 2] });
    };
    await withRun(temporal, script, async (run) => {
      const failure = await run.result().then(
        () => null,
        (error: unknown) => error,
      );
      expect(failure).toBeInstanceOf(WorkflowFailedError);
      expect((failure as WorkflowFailedError).cause).toMatchObject({ type, message: text, details: [1, 2] });
    });
  });

  it('keeps all records when it is cancelled in the middle of a step, and still writes the report', async () => {
    const script = uniqueScript('cancel');
    const held = gate();
    script.before = (call) => (call === 'collect 4' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      await run.cancel();
      await expect(run.result()).rejects.toBeInstanceOf(WorkflowFailedError);
      expect((await run.describe()).status.name).toBe('CANCELLED');
      expect(await run.query(statusQuery)).toMatchObject({ phase: 'stopped', step: 3 });
    });
    expect(script.calls.at(-1)).toBe('report');
  });

  it('ends early if an interval evaluation reaches the target', async () => {
    const script = uniqueScript('target', { target_pass_at_1: 0.9 });
    script.passAt1 = (step) => (step >= 4 ? 0.95 : 0.2);
    const result = await withRun(temporal, script, (run) => run.result());
    expect(result).toMatchObject({ ended: 'completed', step: 4, reachedTarget: 0.9 });
    expect(result.evaluations.at(-1)).toMatchObject({ step: 4, suite: 'final', pass_at_1: 0.95 });
    expect(targetNote(result)).toMatch(
      /^ended at step 4: the interval evaluation reached 90 %; final evaluation 95\.0 % \(\d+\)$/,
    );
    expect(script.calls).not.toContain('plan 5');
  });

  it('lets no step fail because of a failed checkpoint, but does not end without the last checkpoint', async () => {
    const script = uniqueScript('upload');
    script.before = (call) => {
      if (call === 'save 2') throw ApplicationFailure.nonRetryable('no space left', 'StoreFull');
    };
    await withRun(temporal, script, async (run) => {
      await run.result();
      expect((await run.query(statusQuery)).lastCheckpoint).toBe(6);
    });
    expect(script.calls).not.toContain('upload 2');
    expect(script.calls).toContain('upload 3');
  });
});
