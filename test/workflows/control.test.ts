// What a person asks of a run under way, beside a pause and a stop at a step's end.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { setHyperparametersUpdate, statusQuery, stopAfterUpdate } from '../../src/workflows/messages.js';
import { startTemporal, type TestTemporal } from '../support/temporal-server.js';
import {
  gate,
  outlineOf,
  scriptRun,
  startRun,
  uniqueName,
  withWorkers,
  workflowBundle,
} from './scripted-run.js';

describe('control of a run', { timeout: 60_000 }, () => {
  let temporal: TestTemporal;
  beforeAll(async () => {
    [temporal] = await Promise.all([startTemporal(), workflowBundle()]);
  }, 60_000);
  afterAll(() => temporal?.stop());

  it('evaluates and keeps checkpoints at the intervals that somebody has set, also after a new start', async () => {
    const phases = [{ name: 'grpo', kind: 'grpo' as const, steps: 8 }];
    const script = scriptRun(
      outlineOf(uniqueName('intervals'), { phases, ckpt_interval: 100, eval_interval: 100 }),
    );
    const held = gate();
    script.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
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
});
