// Garbage collections beside the steps (R23): no step waits for a collection or fails because of one, and all collections have ended when
// the run ends.
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { statusQuery } from '../../../src/workflows/messages.js';
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

describe('the collections of a run', () => {
  const temporal = useTemporal();

  const phases = grpoPhases(8);

  function script(collect: (step: number) => Promise<void>): { script: ScriptedRun; asked: number[] } {
    const asked: number[] = [];
    const scripted = uniqueScript('collects', { phases, ckpt_interval: 2, eval_interval: 0 });
    scripted.activities.collectGarbage = async ({ step }) => {
      asked.push(step);
      await collect(step);
      return { n: null, checkpoints: 0, steps: 0, freed: 0 };
    };
    return { script: scripted, asked };
  }

  it('run one at a time, delay no step, and end before the run does', async () => {
    const held = gate();
    const { script: scripted, asked } = script(() => held.wait());
    await withRun(temporal, scripted, async (run) => {
      await until(run, ({ step }) => step === 8);
      await untilItWaitsFor(run, [`step-${String(asked[0]).padStart(6, '0')}/gc`]);
      expect(asked).toHaveLength(1);
      held.release();
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 8 });
    });
    expect(asked.at(-1)).toBe(8);
    expect(asked).toHaveLength(2);
  });

  it('do not make their run fail', async () => {
    const { script: scripted, asked } = script(() =>
      Promise.reject(ApplicationFailure.nonRetryable('the disk answers nothing', 'UnreadableRecord')),
    );
    await withRun(temporal, scripted, async (run) => {
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 8 });
      const { collectionFailure } = await run.query(statusQuery);
      expect(collectionFailure).toEqual({ step: 8, reason: 'the disk answers nothing' });
    });
    expect(asked.length).toBeGreaterThan(1);
  });

  it('are no longer shown as failing once a later collection has succeeded', async () => {
    const { script: scripted, asked } = script(() =>
      asked.length > 1
        ? Promise.resolve()
        : Promise.reject(ApplicationFailure.nonRetryable('the disk answers nothing', 'UnreadableRecord')),
    );
    await withRun(temporal, scripted, async (run) => {
      await run.result();
      expect((await run.query(statusQuery)).collectionFailure).toBeUndefined();
    });
    expect(asked.length).toBeGreaterThan(1);
  });
});
