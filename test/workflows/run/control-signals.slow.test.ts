// `temporal workflow signal` to a run: does the same as the Update of that name, once. If it changes nothing, the run says why.
import { setTimeout as delay } from 'node:timers/promises';
import type { WorkflowHandle } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import type { trainingRun } from '../../../src/workflows/run/training-run.js';
import { type CommandAnswer, temporalCli } from '../../support/servers/temporal-cli.js';
import { startTemporal } from '../../support/servers/temporal-server.js';
import {
  gate,
  grpoPhases,
  type ScriptedRun,
  uniqueScript,
  until,
  useTemporal,
  withRun,
} from '../scripted-run.js';

const changes = (script: ScriptedRun): string[] =>
  script.calls.filter((call) => call.startsWith('control ')).map((call) => call.replace('control ', ''));

describe('a signal to a run', () => {
  const temporal = useTemporal();

  const cli = (...args: string[]): Promise<CommandAnswer> => temporalCli(temporal.address)(...args);

  async function signal(name: string, verb: string, input?: string): Promise<void> {
    const more = input === undefined ? [] : ['--input', input];
    const answer = await cli('workflow', 'signal', '-w', `train/${name}`, '--name', verb, ...more);
    expect(answer).toMatchObject({ code: 0, errors: '' });
  }

  /** In the middle of step 3; afterwards `then` runs, and the run is released. */
  async function atStep3(
    script: ScriptedRun,
    then: (name: string, run: WorkflowHandle<typeof trainingRun>, release: () => void) => Promise<void>,
  ): Promise<void> {
    const held = gate();
    script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
    await withRun(temporal, script, async ({ workflowId }) => {
      await held.reached;
      await then(script.outline.name, temporal.client.workflow.getHandle(workflowId), () => held.release());
    });
  }

  it('does what the Update of its name does, for each verb, and writes one record', async () => {
    const script = uniqueScript('verbs', { ckpt_interval: 100 });
    await atStep3(script, async (name, run, release) => {
      await signal(name, 'setHyperparameters', '{"lr": 0.05}');
      await until(run, ({ control }) => control.lr === 0.05);
      await signal(name, 'checkpointNow');
      await until(run, ({ control }) => control.checkpoint === 3);
      await signal(name, 'stopAfter', '{"step": 5}');
      await until(run, ({ control }) => control.stopAfter === 5);
      await signal(name, 'pause');
      await until(run, ({ control }) => control.paused);
      release();
      expect(await until(run, ({ phase }) => phase === 'paused')).toMatchObject({ step: 3 });
      await signal(name, 'resume');
      await until(run, ({ step }) => step > 3);
      expect(await run.result()).toMatchObject({ ended: 'stopped', step: 5 });
    });
    expect(changes(script)).toEqual(['setHyperparameters', 'checkpointNow', 'stopAfter', 'pause', 'resume']);
    expect(script.committed.get(4)).toMatchObject({ lr: 0.05 });
    expect(script.uploaded).toContain(3);
  });

  it('cuts off sampling, as `pauseNow` does', async () => {
    const script = uniqueScript('now');
    await atStep3(script, async (name, run) => {
      await signal(name, 'pauseNow');
      expect(await until(run, ({ phase }) => phase === 'paused')).toMatchObject({ step: 2 });
      script.before = () => undefined;
      await signal(name, 'resume');
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
  });

  it.each([
    ['setHyperparameters', '{"lr": 7}', 'lr must be a number above 0 and at most 1, not 7'],
    ['setHyperparameters', undefined, 'setHyperparameters takes an object'],
    ['stopAfter', '{"step": -1}', 'stopAfter takes the last step to run'],
    ['stopAfter', undefined, 'stopAfter takes the last step to run, for example {"step": 120}, not nothing'],
    ['resume', undefined, 'it asks for what is already in force'],
    ['halt', undefined, 'no such signal; a run has the signals pause, pauseNow, resume, setHyperparameters'],
  ])(
    'that changes nothing (%s %s) is noted with the reason in the run’s details and status',
    async (...one) => {
      const [verb, input, reason] = one;
      const script = uniqueScript('nothing');
      await atStep3(script, async (name, run, release) => {
        await signal(name, verb, input);
        const { signals } = await until(run, (status) => (status.signals ?? []).length > 0);
        expect(signals).toEqual([
          { name: verb, reason: expect.stringContaining(reason) as string, at: expect.any(String) as string },
        ]);
        const details = await cli('workflow', 'metadata', '-w', `train/${name}`);
        expect(details.output).toContain(`the signal ${verb} of `);
        expect(details.output).toContain(reason);
        release();
        expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
      });
      expect(script.control.n).toBe(0);
    },
  );

  it('says why if its record cannot be written, and ends nothing', async () => {
    const script = uniqueScript('by-hand');
    const recording = gate();
    await atStep3(script, async (name, run, release) => {
      const { before } = script;
      script.before = (call) => (call === 'control pause' ? recording.wait() : before(call));
      await signal(name, 'pause');
      await recording.reached;
      await temporal.client.activity.complete({ workflowId: run.workflowId, activityId: 'control/1' }, 'x');
      const { signals } = await until(run, (status) => (status.signals ?? []).length > 0);
      expect(signals?.[0]?.reason).toContain('control/1 was completed by hand');
      recording.release();
      release();
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
  });

  it('writes one record even if a reset repeats it, and does not undo later changes', async () => {
    const script = uniqueScript('reset');
    await atStep3(script, async (name, run, release) => {
      await signal(name, 'pause');
      await until(run, ({ control }) => control.paused);
      await signal(name, 'resume');
      await until(run, ({ control }) => control.n === 2 && !control.paused);
      const flags = ['--type', 'FirstWorkflowTask', '--reason', 'a test'];
      expect((await cli('workflow', 'reset', '-w', `train/${name}`, ...flags)).code).toBe(0);
      release();
      await until(run, ({ step }) => step >= 4);
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    });
    expect(script.control).toMatchObject({ n: 2, paused: false });
  });
});

describe('signals to a run that continues as new after every step', () => {
  const dynamicConfig = { 'limit.historyCount.suggestContinueAsNew': 20 };
  const temporal = useTemporal(() => startTemporal({ dynamicConfig }));

  it('are each recorded once, at whatever moment they arrive', async () => {
    const phases = grpoPhases(5);
    const script = uniqueScript('anew', { phases, ckpt_interval: 0, eval_interval: 0 });
    await withRun(temporal, script, async (run) => {
      const handle = temporal.client.workflow.getHandle(run.workflowId);
      const over = { value: false };
      const ended = run.result().finally(() => (over.value = true));
      let sent = 0;
      while (!over.value) {
        const accepted = await handle.signal('setHyperparameters', { lr: (sent + 1) / 1e4 }).then(
          () => true,
          // The run has ended in the meantime.
          () => false,
        );
        if (accepted) sent += 1;
        // The server ends no execution that has just received a signal, so many signals in a row would delay the run.
        await delay(400);
      }
      expect(await ended).toMatchObject({ ended: 'completed', step: 5 });
      expect(script.calls.filter((call) => call === 'open').length).toBeGreaterThan(2);
      expect(changes(script)).toHaveLength(sent);
      expect(script.control).toMatchObject({ n: sent, lr: sent / 1e4 });
    });
  });
});
