// Activities of a run without an engine: records are in memory, and a script gives the figures. Tests run them on a real Temporal server,
// in real workers.
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowExecutionDescription, WorkflowHandleWithFirstExecutionRunId } from '@temporalio/client';
import type { WorkflowBundleOption } from '@temporalio/worker';
import { testWorker } from '../support/test-worker.js';
import { afterAll, beforeAll } from 'vitest';
import type {
  ControlState,
  KeptState,
  LeaseRequest,
  NodeActivities,
  OpenedRun,
  OrchestratorActivities,
  PhaseSpan,
  RunOutline,
  RunStatus,
  TransferActivities,
} from '../../src/activities/contracts.js';
import { guardActivities } from '../../src/workers/attempt/activity-guard.js';
import { OpenActivities } from '../../src/workers/attempt/open-activities.js';
import {
  type BundledInterceptor,
  cachedWorkflowBundle,
} from '../../src/workers/orchestrator/workflow-bundle.js';
import {
  engineQueue,
  grantedSignal,
  refusedSignal,
  statusQuery,
  transferQueue,
  waitingSignal,
} from '../../src/workflows/messages.js';
import type { trainingRun } from '../../src/workflows/run/training-run.js';
import type { TrainingOptions } from '../../src/workflows/run/training-options.js';
import { sharedTemporal } from '../support/servers/shared-temporal.js';
import type { ConnectedTemporal } from '../support/servers/temporal-server.js';
import type { ServedTokens } from '../../src/spec/budget.js';

export type RunHandle = WorkflowHandleWithFirstExecutionRunId<typeof trainingRun>;
export type AllActivities = OrchestratorActivities & NodeActivities & TransferActivities;

type PhaseLength = Pick<PhaseSpan, 'name' | 'kind'> & { steps: number };

type OutlineChanges = Partial<Omit<RunOutline, 'phases'>> & { phases?: PhaseLength[] };

export function outlineOf(name: string, { phases, ...changes }: OutlineChanges = {}): RunOutline {
  const lengths: PhaseLength[] = phases ?? [
    { name: 'drill', kind: 'sft', steps: 2 },
    { name: 'grpo', kind: 'grpo', steps: 4 },
  ];
  let last = 0;
  return {
    run: name,
    name,
    project: 'tests',
    model: 'arithmetic',
    phases: lengths.map(({ steps, ...phase }) => {
      const first = last + 1;
      last += steps;
      return { ...phase, first, last };
    }),
    ckpt_interval: 2,
    eval_interval: 2,
    target_pass_at_1: 0,
    block_after_s: 0,
    ...changes,
  };
}

export interface ScriptedRun {
  outline: RunOutline;
  node: string;
  /** Stands for the pool: the node that a request is granted at once, or null for none. */
  grant: (request: Omit<LeaseRequest, 'numerics'>) => Promise<string | null> | string | null;
  /** The activities in the order in which they ended, such as `update 3`. */
  calls: string[];
  /** Number of activities in flight. */
  underWay: number;
  control: ControlState;
  committed: Map<number, { control: number; lr: number }>;
  /** Steps whose checkpoints are in the store, ascending. */
  uploaded: number[];
  /** Throws or waits before an activity does its work. */
  before: (call: string) => Promise<void> | void;
  passAt1: (step: number) => number;
  /** The budget when the run starts; each step costs 100 tokens and a GPU hour. */
  budget: () => Pick<OpenedRun, 'budget'>;
  /** What every step sends to a Tinker server; null: the run has an engine. */
  served: ServedTokens | null;
  activities: AllActivities;
}

export function scriptRun(outline: RunOutline, node = `node-${randomUUID().slice(0, 8)}`): ScriptedRun {
  const known = new Map<string, ControlState>();
  const did = async <T>(call: string, answer: () => T): Promise<T> => {
    script.underWay += 1;
    try {
      await script.before(call);
      script.calls.push(call);
      return answer();
    } finally {
      script.underWay -= 1;
    }
  };
  const state = (step: number): string => `state-${step}`.padEnd(64, '0');
  const kindOf = (step: number): 'sft' | 'grpo' =>
    outline.phases.find(({ last }) => step <= last)?.kind ?? 'grpo';
  const script: ScriptedRun = {
    outline,
    node,
    grant: ({ besides }) => (besides.includes(script.node) ? null : script.node),
    calls: [],
    underWay: 0,
    control: { n: 0, paused: false, stopAfter: null, lr: null, temperature: null },
    committed: new Map(),
    uploaded: [],
    served: null,
    before: () => undefined,
    passAt1: (step) => step / 100,
    budget: () => ({}),
    activities: {
      openRun: () =>
        did('open', () => {
          const step = Math.max(-1, ...script.committed.keys());
          return {
            outline,
            owner: 1,
            position: {
              step,
              state: step < 0 ? null : state(step),
              lastCheckpoint: script.uploaded.at(-1) ?? null,
            },
            control: script.control,
            ...script.budget(),
          };
        }),
      requestLease: async (request) => {
        const { lease, workflowId, holding, atOnce } = request;
        if (holding !== undefined) return;
        await did('find', () => undefined);
        const run = Context.current().client.workflow.getHandle(workflowId);
        const granted = await script.grant(request);
        if (granted !== null) await run.signal(grantedSignal, { lease, node: granted });
        else if (atOnce) await run.signal(refusedSignal, { lease });
        else await run.signal(waitingSignal, { lease, cause: 'none', why: 'no node is alive' });
      },
      closedRuns: () => Promise.resolve([]),
      recordControl: ({ updateId, change }) =>
        did(`control ${change.kind}`, () => {
          const done = known.get(updateId);
          if (done) return done;
          const next = { ...script.control, n: script.control.n + 1 };
          if (change.kind === 'pause' || change.kind === 'resume') next.paused = change.kind === 'pause';
          if (change.kind === 'pause' && change.now) next.pausedNow = true;
          if (change.kind === 'resume') delete next.pausedNow;
          if (change.kind === 'checkpointNow') next.checkpoint = change.step;
          if (change.kind === 'stopAfter') next.stopAfter = change.step;
          if (change.kind === 'setHyperparameters') {
            const { kind: _kind, ...values } = change;
            Object.assign(next, values);
          }
          known.set(updateId, next);
          script.control = next;
          return next;
        }),
      planStep: ({ step, control }) =>
        did(`plan ${step}`, () => {
          const lr = script.control.lr ?? 0.1;
          if (!script.committed.has(step)) plans.set(step, { control, lr });
          return { step, kind: kindOf(step), plan: `plan-${step}`, slots: 4 };
        }),
      planWave: () => Promise.resolve({ from: 4, to: 4 }),
      collectGarbage: () => Promise.resolve({ n: null, checkpoints: 0, steps: 0, freed: 0 }),
      writeReport: ({ run }) => did('report', () => ({ key: `runs/${run}/report.html` })),
      commitBase: () =>
        did('base', () => {
          script.committed.set(0, { control: 0, lr: 0 });
          return { state: state(0) };
        }),
      collectRollouts: async ({ step, keep }) => {
        const kept: KeptState | null = keep
          ? await did(`save ${step - 1}`, () => ({ seconds: 0.1 })).catch((error: Error) => ({
              problem: error.message,
            }))
          : null;
        return did(`collect ${step}`, () => ({
          graded: 16,
          unknown: 0,
          mean_reward: 0.25,
          tokens: 100,
          seconds: 0.5,
          kept,
        }));
      },
      updatePolicy: ({ step }) =>
        did(`update ${step}`, () => {
          if (step !== Math.max(...script.committed.keys()) + 1 && !script.committed.has(step)) {
            throw ApplicationFailure.nonRetryable(`step ${step} skips one`, 'Diverged');
          }
          script.committed.set(step, plans.get(step) ?? { control: 0, lr: 0 });
          const metrics =
            kindOf(step) === 'sft'
              ? { 'policy/final_loss': 1 / step }
              : { 'reward/avg_raw_reward': step / 10 };
          const { served } = script;
          const spent = { tokens: 100, gpu_seconds: 3600, ...(served ? { served } : {}) };
          return {
            step,
            kind: kindOf(step),
            state: state(step),
            applied: true,
            reason: null,
            spent,
            metrics,
          };
        }),
      evaluateState: ({ step, suite }) =>
        did(`evaluate ${suite} ${step}`, () => ({
          state: state(step),
          suite: `suite-${suite}`,
          suite_name: suite,
          pass_at_1: script.passAt1(step),
          graded: 40,
          unknown: 0,
        })),
      saveState: ({ step }) => did(`save ${step}`, () => ({ path: `/states/${step}` })),
      uploadCheckpoint: ({ step }) =>
        did(`upload ${step}`, () => {
          script.uploaded.push(step);
          return { key: `checkpoints/${step}` };
        }),
    },
  };
  const plans = new Map<number, { control: number; lr: number }>();
  return script;
}

/** A script of a run with its own name, which begins with `prefix`. */
export function uniqueScript(prefix: string, changes?: OutlineChanges): ScriptedRun {
  return scriptRun(outlineOf(uniqueName(prefix), changes));
}

/** The phases of a run that only takes GRPO steps. */
export function grpoPhases(steps: number): PhaseLength[] {
  return [{ name: 'grpo', kind: 'grpo', steps }];
}

export async function workflowBundle(
  interceptors: readonly BundledInterceptor[] = [],
): Promise<{ codePath: string }> {
  const folder = new URL('../../src/workflows', import.meta.url).pathname;
  return { codePath: await cachedWorkflowBundle(folder, undefined, interceptors) };
}

/**
 * A Temporal server for the tests of a block: the one that all files share, or the one that `start` starts. The object is filled before the
 * first test.
 */
export function useTemporal(start: () => Promise<ConnectedTemporal> = sharedTemporal): ConnectedTemporal {
  const temporal = {} as ConnectedTemporal;
  let connected: ConnectedTemporal | undefined;
  beforeAll(async () => {
    [connected] = await Promise.all([start(), workflowBundle()]);
    Object.assign(temporal, connected);
  });
  afterAll(() => connected?.stop());
  return temporal;
}

/** An orchestrator worker and node workers for this test alone, until `use` ends; `queue` is the orchestrator's task queue. */
export async function withWorkers<T>(
  temporal: ConnectedTemporal,
  script: Pick<ScriptedRun, 'node' | 'activities'>,
  use: (queue: string) => Promise<T>,
  { queue = `longhaul-${randomUUID()}`, bundle }: { queue?: string; bundle?: WorkflowBundleOption } = {},
) {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-workers-'));
  const interceptors = { activity: [guardActivities({ open: new OpenActivities(folder) })] };
  const common = {
    ...{ connection: temporal.connection, interceptors, activities: script.activities },
    // As in our workers: an activity learns of its cancellation by a heartbeat.
    maxHeartbeatThrottleInterval: '2 seconds' as const,
  };
  const workers = [
    await testWorker({ ...common, taskQueue: queue, workflowBundle: bundle ?? (await workflowBundle()) }),
    await testWorker({ ...common, taskQueue: engineQueue(script.node) }),
    await testWorker({ ...common, taskQueue: transferQueue(script.node) }),
  ];
  const runs = workers.map((worker) => worker.run());
  try {
    return await use(queue);
  } finally {
    for (const worker of workers) worker.shutdown();
    await Promise.all(runs);
    rmSync(folder, { recursive: true });
  }
}

/** Like `withWorkers`, but starts the script's run, and `use` receives it. */
export function withRun<T>(
  temporal: ConnectedTemporal,
  script: ScriptedRun,
  use: (run: RunHandle, queue: string) => Promise<T>,
): Promise<T> {
  return withWorkers(temporal, script, async (queue) =>
    use(await startRun(temporal, queue, script.outline.name), queue),
  );
}

export function startRun(
  temporal: ConnectedTemporal,
  queue: string,
  name: string,
  spec: unknown = { name },
  options: TrainingOptions = {},
): Promise<RunHandle> {
  return temporal.client.workflow.start<typeof trainingRun>('trainingRun', {
    taskQueue: queue,
    workflowId: `train/${name}`,
    args: [spec, options],
  });
}

/** Waits until `holds` is true for the run's status; after `deadlineMs`, fails with the status. */
export async function until(
  run: { query(query: typeof statusQuery): Promise<RunStatus> },
  holds: (status: RunStatus) => boolean,
  deadlineMs = 240_000,
): Promise<RunStatus> {
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    const status = await run.query(statusQuery);
    if (holds(status)) return status;
    if (Date.now() > deadline) throw new Error(`the run did not get there: ${JSON.stringify(status)}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** Waits until the workflow is idle, and only these activities are in flight or scheduled. */
export async function untilItWaitsFor(
  run: { describe(): Promise<Pick<WorkflowExecutionDescription, 'raw'>> },
  activities: readonly string[],
): Promise<void> {
  const deadline = Date.now() + 240_000;
  for (;;) {
    const { raw } = await run.describe();
    const pending = (raw.pendingActivities ?? []).map(({ activityId }) => activityId ?? '').sort();
    if (!raw.pendingWorkflowTask && pending.join() === activities.join()) return;
    if (Date.now() > deadline)
      throw new Error(`it waits for ${pending.join()}, and was to wait for ${activities.join()}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** Returns when none of the script's activities is in flight. */
export async function quiet(script: ScriptedRun): Promise<void> {
  const deadline = Date.now() + 240_000;
  while (script.underWay > 0) {
    if (Date.now() > deadline) throw new Error('an activity does not end');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export function uniqueName(prefix: string): string {
  return `${prefix}-${randomUUID().slice(0, 8)}`;
}

/** Holds an activity until `release` is called; `reached` resolves when the activity waits there. */
export function gate(): { wait(): Promise<void>; release(): void; reached: Promise<void> } {
  let release = (): void => undefined;
  let reach = (): void => undefined;
  const open = new Promise<void>((resolve) => (release = resolve));
  const reached = new Promise<void>((resolve) => (reach = resolve));
  return {
    wait: async () => {
      reach();
      await Promise.race([open, Context.current().cancelled]);
    },
    release: () => release(),
    reached,
  };
}
