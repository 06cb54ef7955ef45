// A run of very many steps on the embedded stack, with real workers, the real engine on a tiny model, and people who change it all
// the time: do memory and history stay flat, is any step or update lost or doubled?
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { auditRun } from '../src/activities/reports/audit-run.js';
import { openStore } from '../src/store/open-store.js';
import { findEngineBinary } from '../src/workers/process/engine-binary.js';
import { freePort } from '../src/stack/free-port.js';
import { type Stack, type StackScripts, startStack } from '../src/stack/stack.js';
import { openConnection } from '../src/workers/temporal/temporal-connection.js';
import { orchestratorQueue, statusQuery } from '../src/workflows/messages.js';
import type { trainingRun } from '../src/workflows/run/training-run.js';
import { executionsOf, firstExecution, type HistoryEvent } from './history.js';
import { childOf, MemorySamples, toMib } from './process-memory.js';
import { steadyRun } from './steady-run.js';
import { type TrafficFigures, UpdateTraffic } from './update-traffic.js';

export interface LongRunPlan {
  steps: number;
  /** The windows, in steps, whose medians are compared: first and last of each, both included. */
  early: [number, number];
  late: [number, number];
  /** Of compiled code; by default that of the stack's own build. */
  scripts?: Partial<StackScripts>;
  deadlineMs: number;
  log?(message: string): void;
}

export interface LongRunFigures extends TrafficFigures {
  steps: number;
  seconds: number;
  executions: number;
  /** Of the execution with the longest history. */
  events_max: number;
  events_per_step: number;
  /** Steps that the histories plan or commit other than once, in order. */
  steps_twice_or_skipped: number;
  /** Of the audit: a broken link of any kind. */
  chain_violations: number;
  orchestrator_mib: number;
  node_mib: number;
  engine_mib: number;
  /** Resident memory in the late window over that in the early one, minus 1. */
  orchestrator_growth: number;
  node_growth: number;
  engine_growth: number;
  /** Wall time of a step, in the two windows. */
  step_ms_early: number;
  step_ms_late: number;
}

const run = 'long-run';
const sampleEveryMs = 500;
/** The server suggests a new beginning from 4,096 events on; a few steps before, updates come in a stream. */
const nearEvents = 4_096 - 60;

export async function measureLongRun(plan: LongRunPlan): Promise<LongRunFigures> {
  // In memory where there is such a folder: what is measured is the run, not a disk's fsync.
  const folder = await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'longhaul-bench-long-'));
  let gaveUp: Error | null = null;
  const stack = await startStack({
    folder,
    engine: findEngineBinary(),
    log: () => undefined,
    gaveUp: (error) => (gaveUp = error),
    temporalPort: await freePort(),
    uiPort: await freePort(),
    ...(plan.scripts ? { scripts: plan.scripts } : {}),
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    const client = new Client({ connection });
    const spec = await steadyRun(join(folder, 'data'), { name: run, steps: plan.steps });
    const handle = await client.workflow.start<typeof trainingRun>('trainingRun', {
      ...{ taskQueue: orchestratorQueue, workflowId: `train/${run}`, args: [spec] },
      workflowTaskTimeout: '5 seconds',
    });
    const traffic = new UpdateTraffic(client, handle.workflowId, {
      ...{ longestPauseMs: 4_000, nearEvents, lr: spec.trainer.lr },
    });
    traffic.start();
    const watched = await watch(plan, stack, async () => {
      if (gaveUp) throw gaveUp;
      const status = await client.workflow
        .getHandle(handle.workflowId)
        .query(statusQuery)
        .catch(() => null);
      if (status === null) return null;
      if (status.blocked) throw new Error(`the run is blocked: ${status.blocked.reason}`);
      return status.step;
    });
    await traffic.stop();
    const { ended, step } = await handle.result();
    if (ended !== 'completed') throw new Error(`the run ${ended} after step ${step}`);
    const store = await openStore(stack.addresses.store);
    const audit = await auditRun(store, run);
    for (const { key, problem } of audit.violations.slice(0, 5)) process.stderr.write(`${key}: ${problem}\n`);
    return {
      ...watched,
      ...(await historyOf(client, handle.workflowId, firstExecution(folder, run), plan.steps)),
      ...(await traffic.figures(store, run)),
      steps: audit.steps - 1,
      chain_violations: audit.violations.length,
    };
  } finally {
    await connection.close();
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

type Watched = Pick<
  LongRunFigures,
  | 'seconds'
  | 'orchestrator_mib'
  | 'node_mib'
  | 'engine_mib'
  | 'orchestrator_growth'
  | 'node_growth'
  | 'engine_growth'
  | 'step_ms_early'
  | 'step_ms_late'
>;

/** Until the last step but one is committed: what follows is the report. `step`: null where nobody answers just now. */
async function watch(plan: LongRunPlan, stack: Stack, step: () => Promise<number | null>): Promise<Watched> {
  const { early, late } = plan;
  const memory = new MemorySamples();
  const seen: { step: number; at: number }[] = [];
  const pidOf = (name: string): number | null =>
    stack.processes.find((one) => one.name === name)?.pid ?? null;
  const begun = performance.now();
  for (;;) {
    const at = (await step()) ?? seen.at(-1)?.step ?? 0;
    seen.push({ step: at, at: performance.now() });
    memory.take(at, {
      ...{ orchestrator: pidOf('orchestrator'), node: pidOf('node') },
      engine: childOf(pidOf('node'), 'longhaul-engine'),
    });
    if (seen.length % 60 === 0)
      plan.log?.(
        `step ${at} after ${((performance.now() - begun) / 1_000).toFixed(0)} s; MiB: ${memory.newest()}`,
      );
    if (at >= plan.steps - 1) break;
    if (performance.now() - begun > plan.deadlineMs) throw new Error(`it was at step ${at} at its deadline`);
    await delay(sampleEveryMs);
  }
  const bytes = (name: string, [first, last]: [number, number]): number =>
    memory.medianBytes(name, first, last);
  const growth = (name: string): number => bytes(name, late) / bytes(name, early) - 1;
  const stepMs = ([first, last]: [number, number]): number => {
    const within = seen.filter((one) => one.step >= first && one.step <= last);
    const [from, to] = [within[0], within.at(-1)];
    return from && to && to.step > from.step ? (to.at - from.at) / (to.step - from.step) : Number.NaN;
  };
  return {
    seconds: (performance.now() - begun) / 1_000,
    orchestrator_mib: toMib(bytes('orchestrator', late)),
    node_mib: toMib(bytes('node', late)),
    engine_mib: toMib(bytes('engine', late)),
    orchestrator_growth: growth('orchestrator'),
    node_growth: growth('node'),
    engine_growth: growth('engine'),
    step_ms_early: stepMs(early),
    step_ms_late: stepMs(late),
  };
}

async function historyOf(
  client: Client,
  workflowId: string,
  first: string,
  steps: number,
): Promise<Pick<LongRunFigures, 'executions' | 'events_max' | 'events_per_step' | 'steps_twice_or_skipped'>> {
  let [executions, events, longest] = [0, 0, 0];
  const planned: number[] = [];
  const committed: number[] = [];
  for await (const history of executionsOf(client, workflowId, first)) {
    executions += 1;
    events += history.length;
    longest = Math.max(longest, history.length);
    planned.push(...stepsOf(history, 'plan'));
    committed.push(...stepsOf(history, 'update'));
  }
  const wrong = (found: readonly number[]): number => {
    const times = new Map<number, number>();
    for (const step of found) times.set(step, (times.get(step) ?? 0) + 1);
    const disordered = found.filter((step, index) => index > 0 && step <= (found[index - 1] ?? 0)).length;
    const expected = Array.from({ length: steps }, (_, index) => index + 1);
    return disordered + expected.filter((step) => times.get(step) !== 1).length;
  };
  return {
    executions,
    events_max: longest,
    events_per_step: events / steps,
    steps_twice_or_skipped: wrong(planned) + wrong(committed),
  };
}

/** Steps of the activities `step-000120/{name}` that a history has scheduled and completed, in order. */
function stepsOf(history: readonly HistoryEvent[], name: string): number[] {
  const completed = new Set(
    history.map((event) => Number(event.activityTaskCompletedEventAttributes?.scheduledEventId ?? 0)),
  );
  return history.flatMap((event) => {
    const id = event.activityTaskScheduledEventAttributes?.activityId ?? '';
    const step = /^step-([0-9]+)\/(.*)$/.exec(id);
    return step?.[2] === name && completed.has(Number(event.eventId)) ? [Number(step[1])] : [];
  });
}
