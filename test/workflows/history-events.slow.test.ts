import { setTimeout as delay } from 'node:timers/promises';
import type { History } from '@temporalio/common/lib/proto-utils.js';
import { describe, expect, it } from 'vitest';
import { startTemporal } from '../support/servers/temporal-server.js';
import { stopAfterUpdate } from '../../src/workflows/messages.js';
import {
  gate,
  grpoPhases,
  type ScriptedRun,
  uniqueScript,
  untilItWaitsFor,
  useTemporal,
  withRun,
} from './scripted-run.js';

const warmAndGrpo = [
  { name: 'drill', kind: 'sft' as const, steps: 3 },
  { name: 'grpo', kind: 'grpo' as const, steps: 3 },
];

describe('the history of a run', () => {
  const dynamicConfig = { 'limit.historyCount.suggestContinueAsNew': 400 };
  const temporal = useTemporal(() => startTemporal({ dynamicConfig }));

  const historyOf = (script: ScriptedRun): Promise<{ events: NonNullable<History['events']> }> =>
    withRun(temporal, script, async (run) => {
      await run.result();
      return { events: (await run.fetchHistory()).events ?? [] };
    });

  // Activities that run side by side end at different times, so each end is a workflow task of its own.
  const slowly = (call: string): Promise<void> =>
    delay({ collect: 250, evaluate: 150, upload: 20, update: 100 }[call.split(' ')[0] ?? ''] ?? 0);

  it.each([
    ['an evaluation and a checkpoint after every second step', { ckpt_interval: 2, eval_interval: 2 }],
    ['an evaluation and a checkpoint after each step', { ckpt_interval: 1, eval_interval: 1 }],
    [
      'evaluations that may end the run',
      { ckpt_interval: 1, eval_interval: 1, target_pass_at_1: 2, phases: warmAndGrpo },
    ],
    ['supervised steps before GRPO', { ckpt_interval: 1, eval_interval: 1, phases: warmAndGrpo }],
  ])('has at most 40 events in every step: %s', async (_, changes) => {
    const phases = grpoPhases(5);
    const script = uniqueScript('events', { phases, ...changes });
    script.before = slowly;
    const perStep = eventsPerStep(await historyOf(script));
    expect(perStep.length).toBeGreaterThanOrEqual(4);
    expect(Math.max(...perStep)).toBeLessThanOrEqual(40);
  });

  it('has at most 40 events in a step in which an earlier upload ends', async () => {
    const phases = grpoPhases(6);
    const script = uniqueScript('late', { phases, ckpt_interval: 1, eval_interval: 1 });
    const late = gate();
    script.before = async (call) => {
      if (call === 'upload 2') await late.wait();
      if (call === 'plan 4') {
        late.release();
        // The workflow must know that the upload has ended when this step is planned.
        while (!script.calls.includes('upload 2')) await delay(10);
        await delay(300);
      }
      await slowly(call);
    };
    const perStep = eventsPerStep(await historyOf(script));
    expect(perStep.length).toBe(5);
    expect(Math.max(...perStep)).toBeLessThanOrEqual(40);
    expect(script.calls).not.toContain('upload 3');
    expect(script.calls).toContain('upload 4');
  });

  it('has payloads below 10 KB, and activity ids that a person can guess', async () => {
    const phases = grpoPhases(4);
    const script = uniqueScript('history', { phases, ckpt_interval: 2, eval_interval: 2 });
    const { events } = await historyOf(script);
    const ids = events.flatMap((event) => event.activityTaskScheduledEventAttributes?.activityId ?? []);
    expect(ids).toEqual(
      expect.arrayContaining([
        ...['step-000000/base', 'step-000001/plan', 'step-000001/collect'],
        ...['step-000001/update', 'step-000002/upload', 'step-000002/evaluate-interval', 'report'],
      ]),
    );
    for (const event of events) expect(JSON.stringify(event).length).toBeLessThan(10 * 1024);
    const scheduled = events.filter((event) => event.activityTaskScheduledEventAttributes);
    const text = new TextDecoder();
    const summaries = scheduled.map((event) =>
      text.decode(event.userMetadata?.summary?.data ?? new Uint8Array()),
    );
    expect(summaries.filter((summary) => summary === '')).toEqual([]);
    expect(summaries).toContain('"step 3 · update · reward 0.20 at 2"');
  });

  it('limits the wait for a worker to two minutes for all work on a node, so a lost node delays no checkpoint', async () => {
    const phases = warmAndGrpo.map((phase) => ({ ...phase, steps: 2 }));
    const script = uniqueScript('lost', { phases, ckpt_interval: 1 });
    const { events } = await historyOf(script);
    const onNode = events.flatMap(({ activityTaskScheduledEventAttributes: scheduled }) =>
      scheduled?.taskQueue?.name?.startsWith('longhaul-node.') ? [scheduled] : [],
    );
    const waits = new Map(
      onNode.map((scheduled) => [
        scheduled.activityType?.name,
        Number(scheduled.scheduleToStartTimeout?.seconds),
      ]),
    );
    expect(Object.fromEntries(waits)).toEqual({
      ...{ commitBase: 120, collectRollouts: 120, updatePolicy: 120, evaluateState: 120 },
      ...{ saveState: 120, uploadCheckpoint: 120 },
    });
  });

  it('ends at a step boundary when the server suggests it: the run continues as new', async () => {
    const phases = [{ name: 'drill', kind: 'sft' as const, steps: 40 }];
    const script = uniqueScript('anew', { phases, ckpt_interval: 10 });
    await withRun(temporal, script, async (run) => {
      const result = await run.result();
      expect(result).toMatchObject({ ended: 'completed', step: 40 });
      expect(result.evaluations.map(({ step }) => step)).toEqual([0, 40]);
      const { raw, runId } = await temporal.client.workflow.getHandle(run.workflowId).describe();
      expect(runId).not.toBe(run.firstExecutionRunId);
      expect(raw.workflowExecutionInfo?.firstRunId).toBe(run.firstExecutionRunId);
    });
    expect(script.calls.filter((call) => call === 'open').length).toBeGreaterThan(1);
    const updates = script.calls.filter((call) => call.startsWith('update '));
    expect(updates).toEqual(Array.from({ length: 40 }, (_, index) => `update ${index + 1}`));
  });

  it('ends without losing a stop: a stop that the run has passed stays passed, and a new stop applies', async () => {
    const phases = [{ name: 'drill', kind: 'sft' as const, steps: 80 }];
    const script = uniqueScript('stop-anew', { phases, ckpt_interval: 10 });
    for (const step of [0, 1, 2, 3, 4, 5]) script.committed.set(step, { control: 0, lr: 0.1 });
    script.control = { ...script.control, n: 1, stopAfter: 5 };
    const opens = (): number => script.calls.filter((call) => call === 'open').length;
    const uploading = gate();
    let uploaded = 0;
    script.before = (call) => {
      if (!call.startsWith('upload') || opens() < 2) return;
      uploaded ||= Number(call.split(' ')[1]);
      return uploading.wait();
    };
    await withRun(temporal, script, async (run) => {
      await uploading.reached;
      // At the end of its second execution, the run waits only for the upload.
      await untilItWaitsFor(run, [`step-${String(uploaded).padStart(6, '0')}/upload`]);
      await run.executeUpdate(stopAfterUpdate, { args: [{ step: 5 }] });
      uploading.release();
      expect(await run.result()).toMatchObject({ ended: 'stopped' });
    });
    expect(opens()).toBe(3);
    expect(script.calls.at(-1)).toBe('report');
  });
});

/** The end of a collection counts for the step that began it: on a busy machine, it may come during the next step. */
function eventsPerStep({ events }: { events: NonNullable<History['events']> }): number[] {
  const perStep: number[] = [];
  const collections = new Map<string, number>();
  let step = -1;
  let cause = step;
  for (const event of events) {
    const begun = event.activityTaskScheduledEventAttributes;
    const ended = event.activityTaskStartedEventAttributes ?? event.activityTaskCompletedEventAttributes;
    if (begun?.activityId?.endsWith('/plan')) step = perStep.push(0) - 1;
    if (begun?.activityType?.name === 'collectGarbage') collections.set(String(event.eventId), step);
    if (ended) cause = collections.get(String(ended.scheduledEventId)) ?? step;
    const isWorkflowTask =
      event.workflowTaskScheduledEventAttributes ??
      event.workflowTaskStartedEventAttributes ??
      event.workflowTaskCompletedEventAttributes;
    const counted = ended || isWorkflowTask ? cause : step;
    perStep[counted] = (perStep[counted] ?? 0) + 1;
  }
  // The end of the last collection belongs to the end of the run.
  perStep.pop();
  console.log(`history events per step: ${perStep.join(', ')}`);
  return perStep;
}
