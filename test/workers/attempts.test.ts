import { mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { Worker } from '@temporalio/worker';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { guardActivities } from '../../src/workers/activity-guard.js';
import { AttemptGate, AttemptSuperseded } from '../../src/workers/attempt-gate.js';
import { startHeartbeat } from '../../src/workers/heartbeat.js';
import { OpenActivities } from '../../src/workers/open-activities.js';
import {
  gate,
  outlineOf,
  scriptRun,
  startRun,
  uniqueName,
  until,
  workflowBundle,
} from '../workflows/scripted-run.js';
import { startTemporal, type TestTemporal } from '../support/temporal-server.js';

describe('the attempt gate (R28)', () => {
  it('lets the newer attempt abort the older and wait until it has let go', async () => {
    const attempts = new AttemptGate();
    const order: string[] = [];
    const older = attempts.enter('run/step-1/update', async (signal) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      order.push('older aborted');
      await delay(20);
      order.push('older left');
      throw signal.reason as Error;
    });
    const newer = attempts.enter('run/step-1/update', () => Promise.resolve(order.push('newer works')));
    await expect(older).rejects.toBeInstanceOf(AttemptSuperseded);
    await newer;
    expect(order).toEqual(['older aborted', 'older left', 'newer works']);
  });

  it('never runs an attempt that was superseded while it waited', async () => {
    const attempts = new AttemptGate();
    let release = (): void => undefined;
    const first = attempts.enter('a', () => new Promise<void>((resolve) => (release = resolve)));
    const second = attempts.enter('a', () => Promise.reject(new Error('must not run')));
    const third = attempts.enter('a', () => Promise.resolve('third'));
    const outcome = expect(second).rejects.toBeInstanceOf(AttemptSuperseded);
    release();
    await first;
    await outcome;
    expect(await third).toBe('third');
  });
});

describe('the heartbeat', () => {
  it('beats at once and goes on while there is progress, and is silent when the work is wedged', async () => {
    const sent: unknown[] = [];
    const heartbeat = startHeartbeat({ send: (details) => sent.push(details), intervalMs: 10, limitMs: 60 });
    expect(sent.length).toBe(1);
    for (let turn = 0; turn < 5; turn++) {
      await delay(20);
      heartbeat.progress({ turn });
    }
    expect(sent.length).toBeGreaterThan(5);
    await delay(120);
    const beats = sent.length;
    await delay(60);
    expect(sent.length).toBe(beats);
    heartbeat.progress();
    await delay(30);
    expect(sent.length).toBeGreaterThan(beats);
    heartbeat.stop();
  });
});

describe('a worker that dies', { timeout: 60_000 }, () => {
  let temporal: TestTemporal;
  beforeAll(async () => {
    [temporal] = await Promise.all([startTemporal(), workflowBundle()]);
  }, 60_000);
  afterAll(() => temporal?.stop());

  it('has its open activities failed by its successor, which tries them again at once', async () => {
    const script = scriptRun(outlineOf(uniqueName('restart')));
    const folder = mkdtempSync(join(tmpdir(), 'longhaul-open-'));
    const open = new OpenActivities(folder);
    const held = gate();
    const attempts: number[] = [];
    let superseded: unknown = null;
    script.before = async (call) => {
      if (call !== 'collect 3') return;
      const { info, cancellationSignal } = Context.current();
      attempts.push(info.attempt);
      if (info.attempt > 1) return;
      cancellationSignal.addEventListener('abort', () => {
        superseded = cancellationSignal.reason;
      });
      await held.wait();
    };
    const queue = `longhaul-${script.node}`;
    const common = {
      connection: temporal.connection,
      activities: script.activities,
      interceptors: { activity: [guardActivities({ open })] },
    };
    const workers = [
      await Worker.create({ ...common, taskQueue: queue, workflowBundle: await workflowBundle() }),
      await Worker.create({ ...common, taskQueue: `longhaul-node.${script.node}.gpu` }),
      await Worker.create({ ...common, taskQueue: `longhaul-node.${script.node}.io` }),
    ];
    const runs = workers.map((worker) => worker.run());
    try {
      const run = await startRun(temporal, queue, script.outline.name);
      await held.reached;
      writeFileSync(join(folder, 'cut-off.json'), '{"activity": "x');
      const begun = performance.now();
      const failed = await new OpenActivities(folder).failPredecessors(temporal.client.activity);
      expect(failed).toEqual([`train/${script.outline.name}/step-000003/collect`]);
      await until(run, (status) => status.step >= 3);
      const seconds = (performance.now() - begun) / 1000;
      console.log(`taken up again ${(1000 * seconds).toFixed(0)} ms after the successor's start`);
      // The heartbeat's time-out is 30 s: without the token the step would wait for it.
      expect(seconds).toBeLessThan(5);
      expect(attempts).toEqual([1, 2]);
      expect(superseded).toBeInstanceOf(AttemptSuperseded);
      await run.result();
      expect(await failureOf(temporal.client, run.workflowId)).toContain('WorkerRestarted');
    } finally {
      for (const worker of workers) worker.shutdown();
      await Promise.all(runs);
    }
    open.handedOver();
    expect(readdirSync(folder)).toEqual([]);
  });
});

/** What the history says about why the second attempt began. */
async function failureOf(client: Client, workflowId: string): Promise<string> {
  const { events } = await client.workflow.getHandle(workflowId).fetchHistory();
  const started = events?.find((event) => event.activityTaskStartedEventAttributes?.attempt === 2);
  return JSON.stringify(started?.activityTaskStartedEventAttributes?.lastFailure ?? {});
}
