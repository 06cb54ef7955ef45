// A run of very many steps on the embedded stack, with real workers and the real engine on a tiny model. Do memory, history and the time of
// a step stay constant?
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { auditRun } from '../../src/activities/reports/audit-run.js';
import { openStore } from '../../src/store/open-store.js';
import { findEngineBinary } from '../../src/workers/process/built-tool.js';
import { freePort } from '../../src/stack/free-port.js';
import type { StackScripts } from '../../src/stack/process-plans.js';
import { type Stack, startStack } from '../../src/stack/stack.js';
import { openConnection } from '../../src/workers/temporal/temporal-connection.js';
import { orchestratorQueue, statusQuery } from '../../src/workflows/messages.js';
import type { trainingRun } from '../../src/workflows/run/training-run.js';
import { builtScripts } from '../../test/support/repository.js';
import { steadyRun } from '../durability/steady-run.js';
import { executionsOf, firstExecution } from '../quickstart/history.js';
import { MemorySamples, pidsOf } from './process-memory.js';

export interface LongRunPlan {
  steps: number;
  /** Windows of steps whose medians are compared. Both ends are included. */
  early: readonly [number, number];
  late: readonly [number, number];
  /** Compiled code; default: the code that the stack runs. */
  scripts?: Partial<StackScripts>;
  deadlineMs: number;
}

/** Median resident memory in the late window divided by that in the early window, minus 1. */
interface Growth {
  orchestrator_growth: number;
  node_growth: number;
  engine_growth: number;
}

export interface LongRunFigures extends Growth {
  seconds: number;
  executions: number;
  /** Number of events in the longest execution. */
  events_max: number;
  events_per_step: number;
  /** Mean wall time of a step in the early and in the late window. */
  step_ms_early: number;
  step_ms_late: number;
}

const run = 'long-run';
const sampleEveryMs = 500;

/** Throws if the run does not complete, or if the audit of its records finds a violation. */
export async function measureLongRun(plan: LongRunPlan): Promise<LongRunFigures> {
  // Use a folder in memory if there is one: the run is to be measured, not the fsync of a disk.
  const folder = await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'longhaul-bench-long-'));
  let gaveUp: Error | null = null;
  const stack = await startStack({
    folder,
    engine: findEngineBinary(),
    log: () => undefined,
    gaveUp: (error) => (gaveUp = error),
    temporalPort: await freePort(),
    uiPort: await freePort(),
    scripts: { environments: builtScripts.environments, ...plan.scripts },
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    const client = new Client({ connection });
    const spec = await steadyRun(join(folder, 'data'), { name: run, steps: plan.steps });
    const handle = await client.workflow.start<typeof trainingRun>('trainingRun', {
      ...{ taskQueue: orchestratorQueue, workflowId: `train/${run}`, args: [spec] },
      workflowTaskTimeout: '5 seconds',
    });
    const watched = await watch(plan, stack, async () => {
      if (gaveUp) throw gaveUp;
      const status = await client.workflow
        .getHandle(handle.workflowId)
        .query(statusQuery)
        .catch(() => null);
      if (status?.blocked) throw new Error(`the run is blocked: ${status.blocked.reason}`);
      return status?.step ?? null;
    });
    const { ended, step } = await handle.result();
    if (ended !== 'completed') throw new Error(`the run ${ended} after step ${step}`);
    const { violations } = await auditRun(await openStore(stack.addresses.store), run);
    const [violation] = violations;
    if (violation) throw new Error(`${violation.key}: ${violation.problem}`);
    const lengths: number[] = [];
    for await (const events of executionsOf(client, handle.workflowId, firstExecution(folder, run)))
      lengths.push(events.length);
    return {
      ...watched,
      ...{ executions: lengths.length, events_max: Math.max(...lengths) },
      events_per_step: lengths.reduce((sum, length) => sum + length, 0) / plan.steps,
    };
  } finally {
    await connection.close();
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Samples memory until the last step but one is committed, because the report comes after the last one. `step`: null while no worker
 * answers.
 */
async function watch(
  { steps, early, late, deadlineMs }: LongRunPlan,
  stack: Stack,
  step: () => Promise<number | null>,
): Promise<Growth & Pick<LongRunFigures, 'seconds' | 'step_ms_early' | 'step_ms_late'>> {
  const memory = new MemorySamples();
  const seen: { step: number; at: number }[] = [];
  const begun = performance.now();
  for (let at = 0; at < steps - 1; await delay(sampleEveryMs)) {
    at = (await step()) ?? at;
    seen.push({ step: at, at: performance.now() });
    memory.take(at, pidsOf(stack));
    if (performance.now() - begun > deadlineMs) throw new Error(`it was at step ${at} at its deadline`);
  }
  const growth = (name: string): number =>
    memory.medianBytes(name, ...late) / memory.medianBytes(name, ...early) - 1;
  const stepMs = ([first, last]: readonly [number, number]): number => {
    const within = seen.filter((one) => one.step >= first && one.step <= last);
    const [from, to] = [within[0], within.at(-1)];
    return from && to && to.step > from.step ? (to.at - from.at) / (to.step - from.step) : Number.NaN;
  };
  return {
    seconds: (performance.now() - begun) / 1_000,
    orchestrator_growth: growth('orchestrator'),
    node_growth: growth('node'),
    engine_growth: growth('engine'),
    step_ms_early: stepMs(early),
    step_ms_late: stepMs(late),
  };
}
