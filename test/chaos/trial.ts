// One training run on its own stack, disturbed or not. Its result comes only from its records and its histories.
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { findEngine } from '../support/find-tools.js';
import { builtScripts } from '../support/repository.js';
import { auditRun } from '../../src/activities/reports/audit-run.js';
import { phasesOf } from '../../src/activities/run/step-settings.js';
import { startTraining } from '../../src/cli/train/start-training.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { ChainAudit } from '../../src/store/audit/chain-audit.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { lastCommittedStep } from '../../src/store/runs/run-records.js';
import { freePort } from '../../src/stack/free-port.js';
import { servedAt } from '../../src/cli/train/example-server.js';
import type { StackScripts } from '../../src/stack/process-plans.js';
import { startStack, type Stack } from '../../src/stack/stack.js';
import { statusQuery } from '../../src/workflows/messages.js';
import { openConnection } from '../../src/workers/temporal/temporal-connection.js';
import { wrongBatches } from './checks/batch-audit.js';
import { fetchExecutions } from './history/execution.js';
import { auditHistories, type HistoryAudit } from './history/history-audit.js';
import { gradingTokenOf, leakedSessions, placesWithSecrets } from './checks/leftovers.js';

/** The view of a run for the code that disturbs it. */
export interface OpenTrial {
  readonly spec: RunSpec;
  readonly stack: Stack;
  /** Folder of the stack. */
  readonly folder: string;
  readonly client: Client;
  /** Connected directly, without the proxies that are placed before the workers. */
  readonly store: ObjectStore;
  readonly scripts: StackScripts | null;
  /**
   * Name of the process, `node` or `node-2`, of the node that the run works on. Between two nodes it is still the name of the last node's
   * process.
   */
  node: string;
  /** Id of the workflow that must complete. A fault that starts the run under another id sets that id here. */
  workflowId: string;
  over: boolean;
  /** Processes that a fault has started and that are about to end. */
  readonly leaving: Promise<void>[];
  steps: number;
  /** Last committed step. */
  step(): Promise<number>;
}

/** The parts that are placed between a run's processes. Where a part is absent, the stack's own is used. */
export interface Surroundings {
  spec: RunSpec;
  /** `address`: the address that workers get; `direct`: the address that the harness uses. */
  store?: { address: string; direct: string };
  engine?: string;
  nodes?: number;
  scripts?: StackScripts;
  /** Secrets of the run. They may be only in the files `givenIn`, below the stack's folder. If absent: the stack's grading token. */
  secrets?: { texts: readonly string[]; givenIn: readonly string[] };
  /** Called when the stack is ready. */
  opened?(stack: Stack): void;
  stop(): Promise<void>;
}

export interface TrialResult<Disturbance> {
  chain: ChainAudit;
  history: HistoryAudit;
  /** Files and keys that contain a secret. */
  secretsIn: string[];
  /** Differences between the run's batches and the targets that its episodes give. */
  wrongBatches: string[];
  leakedSessions: number;
  disturbances: Disturbance[];
  /** Duration of the run. */
  seconds: number;
}

export interface TrialOptions<Disturbance> {
  spec: RunSpec;
  /** Must end at the latest when the trial is over. */
  disturb?(trial: OpenTrial): Promise<Disturbance[]>;
  surround?(folder: string, spec: RunSpec): Promise<Surroundings>;
  /** Keep the stack's folder, with logs and store, for inspection. */
  keep: boolean;
  /** Entry scripts of the stack; default: those beside this file's compiled form. */
  scripts?: StackScripts;
  deadlineMs?: number;
  /** Stops the processes and ends the trial with an error. */
  signal?: AbortSignal;
  /** Called when the trial needs no processor any more: it then only waits for the end of sessions without a client. */
  onlyWaits?(): void;
  log(message: string): void;
}

const trialDeadlineMs = 10 * 60_000;

export async function runTrial<Disturbance = never>(
  options: TrialOptions<Disturbance>,
): Promise<TrialResult<Disturbance>> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'longhaul-chaos-')));
  const around = await options.surround?.(folder, options.spec).catch(async (error: unknown) => {
    await rm(folder, { recursive: true, force: true });
    throw error;
  });
  try {
    return await trialIn(folder, options, around ?? { spec: options.spec, stop: async () => undefined });
  } finally {
    await around?.stop();
    if (options.keep) options.log(`  kept: ${folder}`);
    else await rm(folder, { recursive: true, force: true });
  }
}

async function trialIn<Disturbance>(
  folder: string,
  options: TrialOptions<Disturbance>,
  around: Surroundings,
): Promise<TrialResult<Disturbance>> {
  const failures: Error[] = [];
  const leaving: Promise<void>[] = [];
  const scripts = { environments: builtScripts.environments, ...(around.scripts ?? options.scripts) };
  const stack = await startStack({
    folder,
    engine: around.engine ?? findEngine(),
    temporalPort: await freePort(),
    uiPort: await freePort(),
    log: () => undefined,
    gaveUp: (error) => failures.push(error),
    ...(around.store ? { store: around.store.address } : {}),
    ...(around.nodes ? { nodes: around.nodes } : {}),
    scripts,
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    around.opened?.(stack);
    const spec = around.opened ? around.spec : servedAt(around.spec, stack.addresses.environments!);
    const client = new Client({ connection });
    await startTraining(client, spec);
    const store = await openStore(around.store?.direct ?? stack.addresses.store);
    const trial: OpenTrial = {
      ...{ spec, stack, folder, client, store },
      scripts: options.scripts ?? null,
      node: 'node',
      workflowId: `train/${spec.name}`,
      over: false,
      leaving,
      steps: phasesOf(spec).at(-1)?.last ?? 0,
      step: () => lastCommittedStep(store, spec.name),
    };
    const began = performance.now();
    const disturbing = options.disturb?.(trial) ?? Promise.resolve([]);
    // A failure is thrown below, when the run has ended or was given up.
    disturbing.catch((error: unknown) => failures.push(error as Error));
    try {
      await untilClosed(trial, failures, options.deadlineMs ?? trialDeadlineMs, options.signal);
    } catch (error) {
      trial.over = true;
      await disturbing.catch(() => undefined);
      throw error;
    }
    trial.over = true;
    const seconds = (performance.now() - began) / 1000;
    const disturbances = await disturbing;
    const { texts, givenIn } = around.secrets ?? gradingTokenOf(folder);
    const executions = await answered(() => fetchExecutions(client, spec.name));
    return {
      chain: await auditRun(store, spec.name),
      history: await auditHistories(store, spec.name, executions, texts),
      secretsIn: await placesWithSecrets({ folder, store, givenIn }, texts),
      wrongBatches: await wrongBatches(store, spec.name),
      leakedSessions: await sessionsWithoutNodes(stack, leaving, options.onlyWaits),
      ...{ disturbances, seconds },
    };
  } finally {
    await Promise.all(leaving);
    await connection.close();
    await stack.stop();
  }
}

/** Nodes keep sockets for later episodes, so they are stopped first. Then no remaining session belongs to a client. */
async function sessionsWithoutNodes(
  stack: Stack,
  leaving: readonly Promise<void>[],
  onlyWaits?: () => void,
): Promise<number> {
  const nodes = stack.processes.filter(({ name }) => name.startsWith('node'));
  await Promise.all([...leaving, ...nodes.map((node) => node.stop())]);
  onlyWaits?.();
  return leakedSessions(stack.addresses.environments!);
}

/** The server itself may die during this, so every request has a deadline and is repeated. */
async function untilClosed(
  trial: OpenTrial,
  failures: Error[],
  deadlineMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { client } = trial;
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    const { workflowId } = trial;
    const gaveUp = failures[0];
    if (gaveUp) throw gaveUp;
    if (signal?.aborted) throw new Error('it was interrupted');
    if (Date.now() > deadline)
      throw new Error(`${workflowId} did not end within ${deadlineMs / 60_000} minutes`);
    const handle = client.workflow.getHandle(workflowId);
    const description = await client
      .withDeadline(Date.now() + 3_000, () => handle.describe())
      .catch(() => null);
    const status = description?.status.name;
    // Another workflow id may have been set during the request.
    if (workflowId !== trial.workflowId) continue;
    if (status === 'COMPLETED') return;
    if (status !== undefined && status !== 'RUNNING' && status !== 'CONTINUED_AS_NEW') {
      throw new Error(`${workflowId} ended as ${status}: ${await failureOf(client, workflowId)}`);
    }
    const state = await client
      .withDeadline(Date.now() + 3_000, () => handle.query(statusQuery))
      .catch(() => null);
    // The nodes of a stack are `local`, `local-2` and so on; their processes are `node`, `node-2`.
    if (state?.node) trial.node = state.node.replace('local', 'node');
    if (state?.blocked) throw new Error(`${workflowId} is blocked: ${state.blocked.reason}`);
    await delay(250);
  }
}

/** Repeats the request for a minute: after the last fault the server may still be starting. */
export async function answered<T>(ask: () => Promise<T>): Promise<T> {
  const giveUpAt = Date.now() + 60_000;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (Date.now() > giveUpAt) throw error;
      await delay(500);
    }
  }
}

async function failureOf(client: Client, workflowId: string): Promise<string> {
  return client.workflow
    .getHandle(workflowId)
    .result()
    .then(
      () => 'no failure',
      (error: unknown) => String((error as { cause?: unknown }).cause ?? error),
    );
}
