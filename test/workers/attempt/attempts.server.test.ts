import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Context } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { testWorker } from '../../support/test-worker.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { guardActivities, startHeartbeat } from '../../../src/workers/attempt/activity-guard.js';
import { AttemptGate, AttemptSuperseded } from '../../../src/workers/attempt/attempt-gate.js';
import { OpenActivities } from '../../../src/workers/attempt/open-activities.js';
import {
  gate,
  startRun,
  uniqueScript,
  until,
  useTemporal,
  workflowBundle,
} from '../../workflows/scripted-run.js';

describe('the attempt gate (R28)', () => {
  /** Resolves when the signal aborts. */
  const aborted = (signal: AbortSignal) =>
    new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));

  it('lets the newer attempt abort the older one and wait for its end', async () => {
    const attempts = new AttemptGate();
    const order: string[] = [];
    let letGo = (): void => undefined;
    const cleanedUp = new Promise<void>((resolve) => (letGo = resolve));
    let stopped = (): void => undefined;
    const olderStopped = new Promise<void>((resolve) => (stopped = resolve));
    const older = attempts.enter('run/step-1/update', async (signal) => {
      await aborted(signal);
      order.push('older aborted');
      stopped();
      await cleanedUp;
      order.push('older left');
      throw signal.reason as Error;
    });
    const newer = attempts.enter('run/step-1/update', () => Promise.resolve(order.push('newer works')));
    await olderStopped;
    letGo();
    await expect(older).rejects.toBeInstanceOf(AttemptSuperseded);
    await newer;
    expect(order).toEqual(['older aborted', 'older left', 'newer works']);
  });

  it('treats work under a new lease as a newer attempt of the same work under the old lease', async () => {
    const attempts = new AttemptGate();
    const order: string[] = [];
    const left = attempts.enter('run/step-1/update', async (signal) => {
      await aborted(signal);
      order.push('left behind');
      throw signal.reason as Error;
    });
    const again = attempts.enter('run/step-1/update.1', () => Promise.resolve(order.push('again')));
    await expect(left).rejects.toBeInstanceOf(AttemptSuperseded);
    await again;
    expect(order).toEqual(['left behind', 'again']);
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

  describe('with an older attempt that does not end', () => {
    beforeEach(() => {
      vi.useFakeTimers();
    });
    afterEach(() => {
      vi.useRealTimers();
    });
    const wedgedGate = () => {
      const wedged: Error[] = [];
      return {
        wedged,
        attempts: new AttemptGate({ limitMs: 60_000, wedged: (error) => wedged.push(error) }),
      };
    };
    const never = () => new Promise<void>(() => undefined);

    it('gives up after its limit, even if several attempts wait', async () => {
      const { attempts, wedged } = wedgedGate();
      void attempts.enter('run/step-1/update', never);
      await vi.advanceTimersByTimeAsync(600_000);
      void attempts.enter('run/step-1/update', never);
      await vi.advanceTimersByTimeAsync(40_000);
      void attempts.enter('run/step-1/update', never);
      await vi.advanceTimersByTimeAsync(15_000);
      expect(wedged).toEqual([]);
      await vi.advanceTimersByTimeAsync(10_000);
      expect(wedged.map(({ message }) => message)).toEqual([
        expect.stringMatching(/run\/step-1\/update .*no progress for 60 s.*in the store/),
      ]);
    });

    it.each([1, 2, 3])(
      'waits as long as that attempt makes progress, with %i newer attempts',
      async (newer) => {
        const { attempts, wedged } = wedgedGate();
        let end = (): void => undefined;
        const older = attempts.enter('a', (_, progress) => {
          const timer = setInterval(progress, 50_000);
          return new Promise<void>((resolve) => (end = resolve)).finally(() => clearInterval(timer));
        });
        const waiting = Array.from({ length: newer }, (_, index) =>
          attempts.enter('a', () => Promise.resolve(index)),
        );
        const outcomes = Promise.allSettled(waiting);
        await vi.advanceTimersByTimeAsync(1_000_000);
        expect(wedged).toEqual([]);
        end();
        await older;
        expect((await outcomes).at(-1)).toEqual({ status: 'fulfilled', value: newer - 1 });
        await vi.advanceTimersByTimeAsync(1_000_000);
        expect(wedged).toEqual([]);
      },
    );
  });

  it('ends a worker whose older attempt hangs, with one line that says why', async () => {
    const script = new URL('../fixtures/wedged-attempt.mjs', import.meta.url).pathname;
    const { code, stderr } = await new Promise<{ code: unknown; stderr: string }>((resolve) =>
      execFile(process.execPath, [script], (error, _, stderr) => resolve({ code: error?.code, stderr })),
    );
    expect(code).toBe(1);
    expect(JSON.parse(stderr)).toMatchObject({
      level: 'fatal',
      component: 'node',
      message: expect.stringContaining('starts it again') as string,
    });
  });
});

describe('the heartbeat', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('is sent at once and while there is progress, and stops when the work hangs', () => {
    const sent: unknown[] = [];
    const heartbeat = startHeartbeat({ send: (details) => sent.push(details), intervalMs: 10, limitMs: 60 });
    expect(sent).toEqual([undefined]);
    for (let turn = 0; turn < 5; turn++) {
      heartbeat.progress({ turn });
      vi.advanceTimersByTime(20);
    }
    expect(sent).toHaveLength(11);
    expect(sent.at(-1)).toEqual({ turn: 4 });
    vi.advanceTimersByTime(1_000);
    const beats = sent.length;
    expect(beats).toBeLessThan(20);
    heartbeat.progress();
    vi.advanceTimersByTime(20);
    expect(sent).toHaveLength(beats + 2);
    heartbeat.stop();
    vi.advanceTimersByTime(20);
    expect(sent).toHaveLength(beats + 2);
  });
});

describe('a worker that dies', () => {
  const temporal = useTemporal();

  it('has its open activities failed by its successor, which tries them again at once', async () => {
    const script = uniqueScript('restart');
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
      await testWorker({ ...common, taskQueue: queue, workflowBundle: await workflowBundle() }),
      await testWorker({ ...common, taskQueue: `longhaul-node.${script.node}.gpu` }),
      await testWorker({ ...common, taskQueue: `longhaul-node.${script.node}.io` }),
    ];
    const runs = workers.map((worker) => worker.run());
    try {
      const run = await startRun(temporal, queue, script.outline.name);
      await held.reached;
      writeFileSync(join(folder, 'cut-off.json'), '{"activity": "x');
      const begun = performance.now();
      const failed = await new OpenActivities(folder).failPredecessors(temporal.client.activity, (message) =>
        expect.unreachable(message),
      );
      expect(failed).toEqual([`train/${script.outline.name}/step-000003/collect`]);
      await until(run, (status) => status.step >= 3);
      const seconds = (performance.now() - begun) / 1000;
      console.log(`taken up again ${(1000 * seconds).toFixed(0)} ms after the successor's start`);
      // Without the token the step would wait for its heartbeat time-out.
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
    rmdirSync(folder);
  });
});

/** The failure that, according to the history, led to the second attempt. */
async function failureOf(client: Client, workflowId: string): Promise<string> {
  const { events } = await client.workflow.getHandle(workflowId).fetchHistory();
  const started = events?.find((event) => event.activityTaskStartedEventAttributes?.attempt === 2);
  return JSON.stringify(started?.activityTaskStartedEventAttributes?.lastFailure ?? {});
}
