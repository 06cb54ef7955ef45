import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ApplicationFailure } from '@temporalio/common';
import { WorkflowFailedError, WorkflowUpdateFailedError } from '@temporalio/client';
import {
  pauseUpdate,
  resumeUpdate,
  setHyperparametersUpdate,
  stopAfterUpdate,
} from '../../src/workflows/messages.js';
import { startTemporal, type TestTemporal } from '../support/temporal-server.js';
import {
  gate,
  outlineOf,
  scriptRun,
  startRun,
  uniqueName,
  until,
  withWorkers,
  workflowBundle,
} from './scripted-run.js';

describe('trainingRun', { timeout: 60_000 }, () => {
  let temporal: TestTemporal;
  beforeAll(async () => {
    [temporal] = await Promise.all([startTemporal(), workflowBundle()]);
  }, 60_000);
  afterAll(() => temporal?.stop());

  it('opens, commits the base, evaluates, takes every step and leaves a report', async () => {
    const script = scriptRun(outlineOf(uniqueName('happy')));
    const result = await withWorkers(temporal, script, async (queue) =>
      (await startRun(temporal, queue, script.outline.name)).result(),
    );
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
    const steps = script.calls.filter((call) => /^(plan|collect|seal|update) /.test(call));
    expect(steps.slice(0, 6)).toEqual(['plan 1', 'seal 1', 'update 1', 'plan 2', 'seal 2', 'update 2']);
    expect(steps.slice(6, 10)).toEqual(['plan 3', 'collect 3', 'seal 3', 'update 3']);
    expect(script.calls).toContain('upload 6');
    expect(script.calls.at(-1)).toBe('report');
  });
});
