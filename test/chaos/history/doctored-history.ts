// A real run with its history, recorded once for a test file, and copies of the history with one change each.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { startTraining } from '../../../src/cli/train/start-training.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { startStack } from '../../../src/stack/stack.js';
import type { OpenedRun } from '../../../src/activities/contracts.js';
import { openConnection } from '../../../src/workers/temporal/temporal-connection.js';
import {
  checkpointNowUpdate,
  pauseUpdate,
  resumeUpdate,
  statusQuery,
} from '../../../src/workflows/messages.js';
import type { trainingRun } from '../../../src/workflows/run/training-run.js';
import { findEngine } from '../../support/find-tools.js';
import { smallRun } from '../../support/small-run.js';
import { type Execution, fetchExecutions, type HistoryEvent } from './execution.js';
import { auditHistories, type HistoryAudit } from './history-audit.js';
import { builtScripts } from '../../support/repository.js';

export const run = 'watched';
/** No process gets this secret: it is in a history only if a test writes it there. */
export const secret = 'a+secret/of=the-run';
const folder = mkdtempSync(join(tmpdir(), 'longhaul-history-'));
const recorded: { executions: Execution[]; store: ObjectStore | null } = { executions: [], store: null };

/** Records a run that was paused twice, resumed, asked for a checkpoint, and continued to its end. */
export async function recordHistory(): Promise<void> {
  const stack = await startStack({
    folder: join(folder, 'stack'),
    engine: findEngine(),
    log: () => undefined,
    gaveUp: (error) => console.error(error.message),
    scripts: builtScripts,
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    const client = new Client({ connection });
    const handle = client.workflow.getHandle<typeof trainingRun>(`train/${run}`);
    await startTraining(client, (await smallRun(join(folder, 'data'))).named(run));
    await handle.executeUpdate(pauseUpdate);
    await handle.executeUpdate(pauseUpdate);
    while ((await handle.query(statusQuery)).phase !== 'paused') await delay(50);
    await handle.executeUpdate(checkpointNowUpdate);
    await handle.executeUpdate(resumeUpdate);
    await handle.result();
    recorded.executions = await fetchExecutions(client, run);
    recorded.store = await openStore(stack.addresses.store);
  } finally {
    await connection.close();
    await stack.stop();
  }
}

export function forgetHistory(): void {
  rmSync(folder, { recursive: true, force: true });
}

export function recordedExecutions(): readonly Execution[] {
  return recorded.executions;
}

export class DoctoredHistory {
  readonly executions = structuredClone(recorded.executions);

  get events(): HistoryEvent[] {
    return this.only.events;
  }

  get only(): Execution {
    const [execution] = this.executions;
    if (!execution || this.executions.length > 1)
      throw new Error('the run is expected to have one execution');
    return execution;
  }

  /** The event that scheduled the activity of this type for this step. */
  scheduled(type: string, step?: number): HistoryEvent {
    return this.events.find((event) => {
      const attributes = event.activityTaskScheduledEventAttributes;
      if (attributes?.activityType.name !== type) return false;
      return step === undefined || (payloadIn(attributes.input) as { step?: number }).step === step;
    })!;
  }

  completed(type: string, step?: number): HistoryEvent {
    const { eventId } = this.scheduled(type, step);
    return this.events.find(
      (event) => event.activityTaskCompletedEventAttributes?.scheduledEventId === eventId,
    )!;
  }

  accepted(name: string): HistoryEvent {
    return this.events.find(
      (event) => event.workflowExecutionUpdateAcceptedEventAttributes?.acceptedRequest.input.name === name,
    )!;
  }

  answered(name: string): HistoryEvent {
    const { updateId } =
      this.accepted(name).workflowExecutionUpdateAcceptedEventAttributes!.acceptedRequest.meta;
    return this.events.find(
      (event) => event.workflowExecutionUpdateCompletedEventAttributes?.meta.updateId === updateId,
    )!;
  }

  editResult<T>(type: string, change: (result: T) => void, step?: number): void {
    edit(this.completed(type, step).activityTaskCompletedEventAttributes!.result!, change);
  }

  editInput<T>(type: string, change: (input: T) => void, step?: number): void {
    edit(this.scheduled(type, step).activityTaskScheduledEventAttributes!.input!, change);
  }

  editOutcome<T>(change: (result: T) => void): void {
    edit(this.events.at(-1)!.workflowExecutionCompletedEventAttributes!.result!, change);
  }

  editAnswer<T>(name: string, change: (answer: T) => void): void {
    const { outcome } = this.answered(name).workflowExecutionUpdateCompletedEventAttributes!;
    edit(outcome!.success!, change);
  }

  /** Repeats an activity after its answer, as if the workflow had scheduled it twice. `told`: name of a signal in between. */
  repeat(type: string, step: number, told?: string): void {
    const [scheduled, completed] = [this.scheduled(type, step), this.completed(type, step)];
    const again = structuredClone<[HistoryEvent, HistoryEvent]>([scheduled, completed]);
    for (const event of again) event.eventId += '000';
    again[1].activityTaskCompletedEventAttributes!.scheduledEventId += '000';
    const signal: HistoryEvent[] = told
      ? [
          {
            eventId: `${completed.eventId}001`,
            eventType: 'EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED',
            workflowExecutionSignaledEventAttributes: { signalName: told },
          },
        ]
      : [];
    this.events.splice(this.events.indexOf(completed) + 1, 0, ...signal, ...again);
  }

  /**
   * Splits the history as if the run had continued as new before it planned `step`, and the new execution had opened the run after step
   * `position`.
   */
  continueAsNewBefore(step: number, position: number): void {
    const first = this.only;
    const [started] = first.events;
    const opening = structuredClone([this.scheduled('openRun'), this.completed('openRun')]);
    edit<OpenedRun>(opening[1]!.activityTaskCompletedEventAttributes!.result!, (opened) => {
      opened.position.step = position;
    });
    const rest = first.events.splice(first.events.indexOf(this.scheduled('planStep', step)));
    first.events.push({
      eventId: 'continued',
      eventType: 'EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW',
      workflowExecutionContinuedAsNewEventAttributes: { newExecutionRunId: 'second' },
    });
    const { workflowId, runId } = first;
    const event = structuredClone(started!);
    event.workflowExecutionStartedEventAttributes!.firstExecutionRunId ??= runId;
    this.executions.push({ workflowId, runId: 'second', events: [event, ...opening, ...rest] });
  }

  remove(...gone: HistoryEvent[]): void {
    this.only.events = this.events.filter((event) => !gone.includes(event));
  }

  /** Moves `event` to the place right before another event. */
  move(event: HistoryEvent, before: HistoryEvent): void {
    this.remove(event);
    this.events.splice(this.events.indexOf(before), 0, event);
  }

  audit(store: ObjectStore | null = recorded.store): Promise<HistoryAudit> {
    return auditHistories(store!, run, this.executions, [secret]);
  }
}

interface Payloads {
  payloads?: { data?: string }[];
}

const payloadIn = ({ payloads }: Payloads = {}): unknown =>
  JSON.parse(Buffer.from(payloads?.[0]?.data ?? 'bnVsbA==', 'base64').toString());

function edit<T>(payloads: Payloads, change: (value: T) => void): void {
  const value = payloadIn(payloads) as T;
  change(value);
  payloads.payloads![0]!.data = Buffer.from(JSON.stringify(value)).toString('base64');
}
