// A run that waits for a person keeps its node for a minute. After a longer time, other runs would wait for the node too long; after a
// shorter time, another node would too often have to restore the run's state.
import { ApplicationFailure } from '@temporalio/common';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pauseUpdate, resumeUpdate } from '../../../src/workflows/messages.js';
import { startTemporal, type TestTemporal } from '../../support/servers/temporal-server.js';
import { PoolStage } from '../pool/pool-stage.js';
import {
  outlineOf,
  type ScriptedRun,
  scriptRun,
  uniqueName,
  until,
  workflowBundle,
} from '../scripted-run.js';

describe('the node of a run that waits for a person', { timeout: 360_000 }, () => {
  let temporal: TestTemporal;
  let stage: PoolStage;
  beforeAll(async () => {
    [temporal] = await Promise.all([startTemporal(), workflowBundle()]);
    stage = await PoolStage.open(temporal);
    await Promise.all([stage.node('local'), stage.node('second')]);
  }, 120_000);
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

  it('goes to another run after a minute, whether its run is paused or blocked, and its run later gets a node again', async () => {
    const phases = ['paused', 'blocked'] as const;
    const idle = await Promise.all(phases.map(async (phase) => ({ phase, ...(await stopped(phase)) })));
    expect(idle.map(({ node }) => node).sort()).toEqual(['local', 'second']);
    const since = Date.now();
    const waiters = await Promise.all(phases.map(() => stage.run(small('other'))));
    for (const waiter of waiters) await until(waiter, (status) => status.phase === 'placing');
    for (const waiter of waiters) expect(await waiter.result()).toMatchObject({ step: 3 });
    expect(Date.now() - since).toBeGreaterThan(55_000);
    for (const { phase, run, script } of idle) {
      expect(await until(run, (status) => status.node === null)).toMatchObject({ phase });
      script.before = () => undefined;
      await run.executeUpdate(resumeUpdate);
      expect(await run.result()).toMatchObject({ step: 3 });
      expect(stage.requests.filter((request) => request.run === script.outline.run)).toHaveLength(2);
    }
  });

  async function stopped(phase: 'paused' | 'blocked') {
    const script = small(phase);
    const run = await stage.run(script);
    if (phase === 'paused') await run.executeUpdate(pauseUpdate);
    else
      script.before = (call) => {
        if (call === 'update 2')
          throw ApplicationFailure.nonRetryable('no server answers', 'EnvironmentsUnavailable');
      };
    const { node } = await until(run, (status) => status.phase === phase);
    return { script, run, node };
  }
});
