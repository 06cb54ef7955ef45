// A step that is sampled again (R24) begins from its plan, wherever it was paused or blocked. Without a resample, it continues where it was.
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { pauseNowUpdate, resumeUpdate } from '../../../src/workflows/messages.js';
import {
  gate,
  grpoPhases,
  quiet,
  type ScriptedRun,
  uniqueScript,
  until,
  useTemporal,
  withRun,
} from '../scripted-run.js';

/** The step in question; an evaluation of the state before it runs beside its rollouts. */
const step = 3;

describe('a step that is sampled again', () => {
  const temporal = useTemporal();

  /** A run whose step has one wave, and the calls of that step with their slots. */
  function script(name: string): { run: ScriptedRun; calls: string[] } {
    const run = uniqueScript(name, { phases: grpoPhases(4), ckpt_interval: 100, eval_interval: 2 });
    const calls: string[] = [];
    const { planStep, collectRollouts, updatePolicy } = run.activities;
    const noted =
      <I extends { step: number }, O>(what: (input: I) => string, act: (input: I) => Promise<O>) =>
      async (input: I): Promise<O> => {
        if (input.step === step) calls.push(what(input));
        return act(input);
      };
    Object.assign(run.activities, {
      planStep: noted(
        () => 'plan',
        async (input: Parameters<typeof planStep>[0]) => ({
          ...(await planStep(input)),
          waves: true as const,
        }),
      ),
      planWave: noted(
        ({ wave }) => `wave ${wave}`,
        async (input: Parameters<typeof run.activities.planWave>[0]) =>
          input.wave === 1 && input.step === step ? { from: 4, to: 6 } : { from: 6, to: 6 },
      ),
      collectRollouts: noted(({ slots }) => `collect ${slots.join('-')}`, collectRollouts),
      updatePolicy: noted(() => 'update', updatePolicy),
    });
    return { run, calls };
  }

  const whole = ['plan', 'collect 0-4', 'wave 1', 'collect 4-6', 'wave 2', 'update'];
  /** What `recordControl` answers once a record has set the step's samples aside. */
  const resample = ({ control }: ScriptedRun): void => void (control.resampled = control.n += 1);

  it.each([
    ['begins from its plan', true, [...whole.slice(0, 4), ...whole]],
    ['goes on in its wave if it is only resumed', false, [...whole.slice(0, 4), ...whole.slice(3)]],
  ])('after a pause amid its wave: %s', async (_, resampled, expected) => {
    const { run, calls } = script('resample-wave');
    const [held, evaluation] = [gate(), gate()];
    let collects = 0;
    run.before = (call) => {
      if (call === 'evaluate interval 2') return evaluation.wait();
      if (call === `collect ${step}` && ++collects === 2) return held.wait();
    };
    await withRun(temporal, run, async (workflow) => {
      await Promise.all([held.reached, evaluation.reached]);
      await workflow.executeUpdate(pauseNowUpdate);
      await until(workflow, ({ phase }) => phase === 'paused');
      await quiet(run);
      run.before = () => undefined;
      if (resampled) resample(run);
      await workflow.executeUpdate(resumeUpdate);
      expect(await workflow.result()).toMatchObject({ ended: 'completed', step: 4 });
    });
    expect(calls).toEqual(expected);
    // The evaluation is of an earlier state, which nothing has set aside.
    expect(run.calls.filter((call) => call === 'evaluate interval 2')).toHaveLength(1);
  });

  it.each([
    ['collect', 'collect 0-4', ['plan', 'collect 0-4', ...whole]],
    ['update', 'update', [...whole, ...whole]],
  ])('after its %s was blocked: it begins from its plan', async (part, call, expected) => {
    const { run, calls } = script(`resample-${part}`);
    let broken = true;
    run.before = (one) => {
      if (broken && one === `${part} ${step}` && calls.at(-1) === call)
        throw ApplicationFailure.nonRetryable('the server is away', 'PolicyServerUnavailable');
    };
    await withRun(temporal, run, async (workflow) => {
      await until(workflow, ({ phase }) => phase === 'blocked');
      broken = false;
      resample(run);
      await workflow.executeUpdate(resumeUpdate);
      expect(await workflow.result()).toMatchObject({ ended: 'completed', step: 4 });
    });
    expect(calls).toEqual(expected);
  });

  it('while its evaluation is blocked: samples from that time are not used', async () => {
    const { run, calls } = script('resample-evaluation');
    let broken = true;
    run.before = (call) => {
      if (broken && call === 'evaluate interval 2')
        throw ApplicationFailure.nonRetryable('nothing was graded', 'NothingGraded');
    };
    await withRun(temporal, run, async (workflow) => {
      await until(workflow, ({ phase }) => phase === 'blocked' && calls.at(-1) === 'wave 2');
      await quiet(run);
      broken = false;
      resample(run);
      await workflow.executeUpdate(resumeUpdate);
      expect(await workflow.result()).toMatchObject({ ended: 'completed', step: 4 });
    });
    expect(calls).toEqual([...whole.slice(0, 5), ...whole]);
  });
});
