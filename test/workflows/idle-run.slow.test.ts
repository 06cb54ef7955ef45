// A run that waits for a person keeps its node for a minute: not longer, because others may need it, and not shorter, because
// another node would have to restore the run's state.
import { ApplicationFailure } from '@temporalio/common';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pauseUpdate, resumeUpdate } from '../../src/workflows/messages.js';
import { startTemporal, type TestTemporal } from '../support/temporal-server.js';
import { PoolStage } from './pool-stage.js';
import { outlineOf, type ScriptedRun, scriptRun, uniqueName, until, workflowBundle } from './scripted-run.js';

describe('the node of a run that waits for a person', { timeout: 180_000 }, () => {
  let temporal: TestTemporal;
  let stage: PoolStage;
  beforeAll(async () => {
    [temporal] = await Promise.all([startTemporal(), workflowBundle()]);
    stage = await PoolStage.open(temporal);
    await stage.node('local');
  }, 60_000);
  afterAll(async () => {
    await stage.close();
    await temporal.stop();
  });

  const small = (name: string): ScriptedRun =>
    scriptRun(
      outlineOf(uniqueName(name), {
        phases: [{ name: 'grpo', kind: 'grpo', steps: 3 }],
        ...{ eval_interval: 0, ckpt_interval: 0 },
      }),
    );

  it.each(['paused', 'blocked'] as const)(
    'is another one’s after a minute of a %s run, and its own again later',
    async (phase) => {
      const [idle, other] = [small(phase), small('other')];
      const run = await stage.run(idle);
      if (phase === 'paused') await run.executeUpdate(pauseUpdate);
      else
        idle.before = (call) => {
          if (call === 'update 2')
            throw ApplicationFailure.nonRetryable('no server answers', 'EnvironmentsUnavailable');
        };
      expect((await until(run, (status) => status.phase === phase)).node).toBe('local');
      const since = Date.now();
      const waiter = await stage.run(other);
      await until(waiter, (status) => status.phase === 'placing');
      expect(await waiter.result()).toMatchObject({ step: 3 });
      expect(Date.now() - since).toBeGreaterThan(55_000);
      expect(await until(run, (status) => status.node === null)).toMatchObject({ phase });
      idle.before = () => undefined;
      await run.executeUpdate(resumeUpdate);
      expect(await run.result()).toMatchObject({ step: 3 });
      const asked = stage.requests.filter((request) => request.run === idle.outline.run);
      expect(asked).toHaveLength(2);
    },
  );
});
