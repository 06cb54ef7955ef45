// What a person can ask of a run besides a pause or a stop at the end of a step.
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { explained } from '../../../src/cli/command-refusals.js';
import {
  checkpointNowUpdate,
  pauseNowUpdate,
  pauseUpdate,
  resumeUpdate,
  setHyperparametersUpdate,
  statusQuery,
  stopAfterUpdate,
} from '../../../src/workflows/messages.js';
import {
  gate,
  grpoPhases,
  quiet,
  type ScriptedRun,
  startRun,
  uniqueScript,
  until,
  untilItWaitsFor,
  useTemporal,
  withRun,
} from '../scripted-run.js';

describe('control of a run', () => {
  const temporal = useTemporal();

  it('lets a person set the evaluation and checkpoint intervals, which apply even after a restart', async () => {
    const phases = grpoPhases(8);
    const script = uniqueScript('intervals', { phases, ckpt_interval: 100, eval_interval: 100 });
    const held = gate();
    script.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
    await withRun(temporal, script, async (run, queue) => {
      await held.reached;
      await run.executeUpdate(setHyperparametersUpdate, { args: [{ ckpt_interval: 3, eval_interval: 2 }] });
      await run.executeUpdate(stopAfterUpdate, { args: [{ step: 4 }] });
      held.release();
      await run.result();
      expect(script.uploaded).toEqual([3, 4]);
      const again = await startRun(temporal, queue, script.outline.name);
      await again.result();
      expect((await again.query(statusQuery)).control).toMatchObject({ ckpt_interval: 3, eval_interval: 2 });
    });
    expect(script.uploaded).toEqual([3, 4, 6, 8]);
    const evaluations = script.calls.filter((call) => call.startsWith('evaluate interval'));
    expect(evaluations).toEqual([2, 4, 6].map((step) => `evaluate interval ${step}`));
  });

  it('keeps the later of two requests, however long the record of the earlier one takes', async () => {
    const script = uniqueScript('two-requests', { ckpt_interval: 100 });
    const held = { step: gate(), record: gate() };
    let records = 0;
    script.before = (call) => {
      if (call === 'collect 3') return held.step.wait();
      if (call !== 'control setHyperparameters') return undefined;
      records += 1;
      return records === 1 ? held.record.wait() : undefined;
    };
    await withRun(temporal, script, async (run) => {
      await held.step.reached;
      const earlier = run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.01 }] });
      await held.record.reached;
      await run.startUpdate(setHyperparametersUpdate, {
        args: [{ lr: 0.02 }],
        waitForStage: 'ACCEPTED',
      });
      held.record.release();
      expect(await earlier).toMatchObject({ n: 1, lr: 0.01 });
      await until(run, ({ control }) => control.n === 2);
      expect(script.control).toMatchObject({ n: 2, lr: 0.02 });
      held.step.release();
      await run.result();
    });
  });

  describe('a pause that does not wait for the end of the step', () => {
    /** In the middle of step 5, which evaluates the state before it beside its rollouts. */
    async function cutOff(
      name: string,
      then: (run: Awaited<ReturnType<typeof startRun>>, script: ScriptedRun, queue: string) => Promise<void>,
    ): Promise<ScriptedRun> {
      const script = uniqueScript(name, { ckpt_interval: 100 });
      const held = { collect: gate(), evaluate: gate() };
      script.before = (call) =>
        ({ 'collect 5': held.collect, 'evaluate interval 4': held.evaluate })[call]?.wait();
      await withRun(temporal, script, async (run, queue) => {
        await Promise.all([held.collect.reached, held.evaluate.reached]);
        expect(await run.executeUpdate(pauseNowUpdate)).toMatchObject({ n: 1, paused: true });
        const paused = await until(run, ({ phase }) => phase === 'paused');
        expect(paused.step).toBe(4);
        await quiet(script);
        await untilItWaitsFor(run, []);
        script.before = () => undefined;
        await then(run, script, queue);
      });
      return script;
    }

    it('cuts off sampling, releases the node, and completes the same plan after resume', async () => {
      const script = await cutOff('now', async (run) => {
        await run.executeUpdate(resumeUpdate);
        expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
      });
      const ofStep = script.calls.filter((call) => / (4|5)$/.test(call) && !/^(report|save)/.test(call));
      expect(ofStep.filter((call) => call === 'plan 5')).toHaveLength(1);
      expect(ofStep.filter((call) => call === 'collect 5')).toHaveLength(1);
      expect(ofStep.filter((call) => call === 'evaluate interval 4')).toHaveLength(1);
      expect(script.committed.get(5)).toEqual({ control: 0, lr: 0.1 });
    });

    it('cuts off work that its dying worker returns in the meantime: nothing is blocked', async () => {
      const script = uniqueScript('now-killed', { ckpt_interval: 100 });
      const held = gate();
      script.before = async (call) => {
        if (call !== 'collect 5') return;
        await held.wait().catch(() => {
          throw ApplicationFailure.retryable('the worker that ran it has ended', 'WorkerRestarted');
        });
      };
      await withRun(temporal, script, async (run) => {
        await held.reached;
        await run.executeUpdate(pauseNowUpdate);
        await until(run, ({ phase }) => phase === 'paused' || phase === 'blocked');
        expect(await run.query(statusQuery)).toMatchObject({ phase: 'paused', blocked: null });
        script.before = () => undefined;
        await run.executeUpdate(resumeUpdate);
        expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
      });
    });

    it('ends by a stop: the run ends with the step before, and a new start takes the step that was cut off', async () => {
      const script = await cutOff('now-stop', async (run, { outline }, queue) => {
        await run.executeUpdate(stopAfterUpdate, { args: [{ step: 4 }] });
        expect(await run.result()).toMatchObject({ ended: 'stopped', step: 4 });
        const again = await startRun(temporal, queue, outline.name);
        await until(again, ({ phase }) => phase === 'paused');
        await again.executeUpdate(resumeUpdate);
        expect(await again.result()).toMatchObject({ ended: 'completed', step: 6 });
      });
      expect(script.calls.filter((call) => call === 'update 5')).toHaveLength(1);
    });

    it('uploads a checkpoint of the current state if a person asks for one in the meantime', async () => {
      const script = await cutOff('now-checkpoint', async (run, { uploaded }) => {
        expect(await run.executeUpdate(checkpointNowUpdate)).toMatchObject({ checkpoint: 4 });
        await until(run, ({ lastCheckpoint }) => lastCheckpoint === 4);
        expect(uploaded).toEqual([4]);
        await run.executeUpdate(resumeUpdate);
        await run.result();
      });
      expect(script.uploaded).toEqual([4, 6]);
    });
  });

  it('answers a pause of a paused run with the current control, and records it once', async () => {
    const script = uniqueScript('paused-twice');
    const held = gate();
    script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      const answers = [];
      for (let time = 0; time < 3; time++) answers.push(await run.executeUpdate(pauseUpdate));
      expect(answers).toEqual(Array(3).fill({ ...script.control, n: 1, paused: true }));
      held.release();
      await until(run, ({ phase }) => phase === 'paused');
      expect(await run.executeUpdate(pauseUpdate)).toMatchObject({ n: 1, paused: true });
      expect(script.control.n).toBe(1);
      await run.executeUpdate(resumeUpdate);
      await run.result();
    });
  });

  it('answers a resume of a run that nothing holds with the current control, and records nothing', async () => {
    const script = uniqueScript('not-held');
    const held = gate();
    script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      const before = await run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.05 }] });
      expect(await run.executeUpdate(resumeUpdate)).toEqual(before);
      expect(script.control.n).toBe(1);
      held.release();
      await run.result();
    });
    expect(script.calls).not.toContain('control resume');
  });

  it('records a resume that comes while a pause is being written, and a pause that comes after it, in this order', async () => {
    const script = uniqueScript('in-a-hurry');
    const [collecting, pausing] = [gate(), gate()];
    script.before = (call) => ({ 'collect 3': collecting, 'control pause': pausing })[call]?.wait();
    await withRun(temporal, script, async (run) => {
      await collecting.reached;
      const paused = run.executeUpdate(pauseUpdate);
      await pausing.reached;
      const resumed = await run.startUpdate(resumeUpdate, { waitForStage: 'ACCEPTED' });
      const pausedAgain = await run.startUpdate(pauseUpdate, { waitForStage: 'ACCEPTED' });
      pausing.release();
      expect(await paused).toMatchObject({ n: 1, paused: true });
      expect(await resumed.result()).toMatchObject({ n: 2, paused: false });
      expect(await pausedAgain.result()).toMatchObject({ n: 3, paused: true });
      expect(await run.executeUpdate(resumeUpdate)).toMatchObject({ n: 4, paused: false });
      collecting.release();
      await run.result();
    });
  });

  it('uploads the state of the next step boundary if a person asks for it', async () => {
    const phases = grpoPhases(6);
    const script = uniqueScript('checkpoint', { phases, ckpt_interval: 100 });
    const held = gate();
    script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await held.reached;
      expect(await run.executeUpdate(checkpointNowUpdate)).toMatchObject({ n: 1, checkpoint: 3 });
      held.release();
      await run.result();
    });
    expect(script.uploaded).toEqual([3, 6]);
  });

  it('says that a finished run cannot be resumed, and how to continue it', async () => {
    const script = uniqueScript('finished');
    await withRun(temporal, script, async (run) => {
      await run.result();
      const { name } = script.outline;
      await expect(explained(run, run.executeUpdate(resumeUpdate))).rejects.toThrow(
        `${name} completed at step 6: to train it further, fork it with more steps (longhaul fork ${name}@6`,
      );
    });
    expect(script.control.n).toBe(0);
  });
});
