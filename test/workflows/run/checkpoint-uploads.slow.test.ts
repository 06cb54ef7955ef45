// Checkpoints beside the steps (R16, R17): one upload at a time, which delays nothing until it lags too far behind.
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { withFailures } from '../../../src/activities/attempt/failure-mapping.js';
import { maxSameFailures } from '../../../src/activities/attempt/repeated-failures.js';
import { StoreFull } from '../../../src/store/record-errors.js';
import { CheckpointUploads } from '../../../src/workflows/run/checkpoint-uploads.js';
import { resumeUpdate, statusQuery } from '../../../src/workflows/messages.js';
import { checkpointPolicy, localSave } from '../../../src/workflows/policies.js';
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

describe('the checkpoints of a run', () => {
  const temporal = useTemporal();

  const callsOf = (script: ScriptedRun, verb: string): string[] =>
    script.calls.filter((call) => call.startsWith(`${verb} `));

  it('do not start while another checkpoint is uploaded, and the steps wait for that upload at the third interval', async () => {
    const phases = grpoPhases(12);
    const script = uniqueScript('lag', { phases, ckpt_interval: 2, eval_interval: 0 });
    const held = gate();
    script.before = (call) => (call === 'upload 2' ? held.wait() : undefined);
    await withRun(temporal, script, async (run) => {
      await until(run, ({ step }) => step === 8);
      await untilItWaitsFor(run, ['step-000002/upload']);
      expect(script.calls.at(-1)).toBe('plan 9');
      expect(callsOf(script, 'save')).toEqual(['save 2']);
      held.release();
      expect(await run.result()).toMatchObject({ step: 12 });
    });
    expect(callsOf(script, 'save')).toEqual(['save 2', 'save 10']);
    expect(callsOf(script, 'upload')).toEqual(['upload 2', 'upload 10', 'upload 12']);
  });

  it('do not make a supervised step fail: a checkpoint that cannot be saved is skipped', async () => {
    const phases = [{ name: 'drill', kind: 'sft' as const, steps: 4 }];
    const script = uniqueScript('sft', { phases, ckpt_interval: 1, eval_interval: 0 });
    script.before = (call) => {
      if (call === 'save 1') throw ApplicationFailure.nonRetryable('no space left', 'StoreFull');
    };
    await withRun(temporal, script, async (run) => {
      const { step, phase } = await until(run, (found) => ['blocked', 'completed'].includes(found.phase));
      expect({ step, phase }).toEqual({ step: 4, phase: 'completed' });
    });
    expect(script.calls).not.toContain('upload 1');
    expect(script.calls).toContain('upload 2');
  });

  /** The last upload fails with `error` the first `times` times; retries follow at once. */
  function failingLastUpload(script: ScriptedRun, times: number, error: Error): { tries: number } {
    const { uploadCheckpoint } = script.activities;
    const counted = { tries: 0 };
    const failing = withFailures<Parameters<typeof uploadCheckpoint>[0], { key: string }>((input) => {
      if (input.step !== script.outline.phases.at(-1)?.last) return uploadCheckpoint(input);
      counted.tries += 1;
      return counted.tries <= times ? Promise.reject(error) : uploadCheckpoint(input);
    });
    script.activities.uploadCheckpoint = (input) =>
      failing(input).catch((failure: Error) => {
        if (failure instanceof ApplicationFailure) throw failure;
        throw ApplicationFailure.create({ message: failure.message, type: failure.name, nextRetryDelay: 1 });
      });
    return counted;
  }

  // The server waits about a second before each retry, so both tests run at the same time.
  it.concurrent('end with the last one, which is tried again while the store is full', async () => {
    const script = uniqueScript('full');
    const times = checkpointPolicy.retry.maximumAttempts;
    const counted = failingLastUpload(script, times, new StoreFull('no space left'));
    await withRun(temporal, script, async (run) => {
      const { phase } = await until(
        run,
        (status) => status.phase === 'blocked' || status.phase === 'completed',
        240_000,
      );
      expect(phase).toBe('completed');
      await run.result();
    });
    expect(counted.tries).toBe(times + 1);
    expect(script.calls).toContain('upload 6');
  });

  it.concurrent('wait for a person if the last checkpoint fails five times in the same way', async () => {
    const script = uniqueScript('last');
    const counted = failingLastUpload(script, maxSameFailures, new RangeError('the file is cut off'));
    await withRun(temporal, script, async (run) => {
      const { blocked } = await until(run, ({ phase }) => phase === 'blocked');
      expect(blocked?.reason).toContain('failed 5 times in the same way: the file is cut off');
      await run.executeUpdate(resumeUpdate);
      await run.result();
      expect((await run.query(statusQuery)).lastCheckpoint).toBe(6);
    });
    expect(counted.tries).toBe(maxSameFailures + 1);
  });
});

describe('a state between checkpoints is saved', () => {
  /** The uploads of a run with a checkpoint every 100 steps, and a way to end an upload. */
  function uploadsAt(step: number) {
    const started: number[] = [];
    const status = { step, lastCheckpoint: null as number | null };
    const uploading = { end: (): void => undefined };
    const uploads = new CheckpointUploads(
      () => ({ interval: 100, asked: null }),
      {
        status,
        checkpoint: (done) => void (status.lastCheckpoint = done),
        checkpointFailed: () => undefined,
      },
      (from) => {
        started.push(from);
        return new Promise((resolve) => (uploading.end = resolve));
      },
    );
    return {
      uploads,
      started,
      end: (): Promise<void> => {
        uploading.end();
        return uploads.drained();
      },
    };
  }

  it('if a restart would cost ten seconds, and twenty times the visible time of the last save', async () => {
    const { uploads } = uploadsAt(1);
    uploads.stepTook(localSave.afterSeconds - 1);
    expect(await uploads.wants(1, 0)).toBeNull();
    uploads.stepTook(1);
    expect(await uploads.wants(2, 0)).toEqual({});
    uploads.saved(2, { seconds: 7 });
    uploads.stepTook(localSave.timesItsCost * 2 - 1);
    expect(await uploads.wants(3, 5)).toBeNull();
    uploads.stepTook(1);
    expect(await uploads.wants(4, 5)).toEqual({});
  });

  it('after every long step if rollouts hide the save, however long the save takes', async () => {
    const { uploads } = uploadsAt(1);
    for (let step = 1; step < 5; step++) {
      uploads.stepTook(60);
      expect(await uploads.wants(step, 40)).toEqual({});
      uploads.saved(step, { seconds: 39 });
    }
  });

  it('during an upload too: the node keeps the uploaded file, and no second upload begins', async () => {
    const { uploads, started, end } = uploadsAt(100);
    uploads.saved(100, { seconds: 0.1 });
    for (const step of [101, 102, 200]) {
      uploads.stepTook(localSave.afterSeconds);
      expect(await uploads.wants(step, 0)).toEqual({ spare: 100 });
      uploads.saved(step, { seconds: 0.1 });
    }
    expect(started).toEqual([100]);
    await end();
    uploads.stepTook(localSave.afterSeconds);
    expect(await uploads.wants(201, 0)).toEqual({});
    uploads.saved(201, { seconds: 0.1 });
    expect(started).toEqual([100, 201]);
  });
});
