// One training run on a stack of its own, with or without kills; its verdict comes from the store alone.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { findEngine } from '../support/find-tools.js';
import type { Random } from './random.js';
import { pidOf, victimNames, type VictimName } from './victims.js';
import { phasesOf } from '../../src/activities/phases.js';
import { startTraining } from '../../src/cli/start-training.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { auditRun } from '../../src/activities/audit-run.js';
import type { ChainAudit } from '../../src/store/chain-audit.js';
import { openStore } from '../../src/store/open-store.js';
import { lastCommittedStep } from '../../src/store/run-records.js';
import { startStack, type Stack, type StackScripts } from '../../src/workers/stack.js';
import { openConnection } from '../../src/workers/temporal-connection.js';

export interface Kill {
  victim: VictimName;
  atMs: number;
  pid: number;
  /** Last step that was committed then. */
  step: number;
}

/** What the killer sees of the run. */
interface OpenTrial {
  over: boolean;
  steps: number;
  /** Last committed step. */
  step(): Promise<number>;
}

export interface TrialResult {
  chain: ChainAudit;
  kills: Kill[];
  /** From the run's start to its end. */
  seconds: number;
}

export interface TrialOptions {
  spec: RunSpec;
  kills: number;
  random: Random;
  /** A kill comes up to so long after the commit of the step that was drawn for it. */
  longestDelayMs: number;
  /** Leave the stack's folder, with logs and store, for a look. */
  keep: boolean;
  /** Entry scripts of the stack; by default those beside this file's compiled form. */
  scripts?: StackScripts;
  log(message: string): void;
}

const trialDeadlineMs = 10 * 60_000;

/** Every kill meets an open run, or is missing from the result. */
export async function runTrial(options: TrialOptions): Promise<TrialResult> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-chaos-'));
  const failures: Error[] = [];
  const stack = await startStack({
    folder,
    engine: findEngine(),
    log: () => undefined,
    gaveUp: (error) => failures.push(error),
    ...(options.scripts ? { scripts: options.scripts } : {}),
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    const { spec } = options;
    const client = new Client({ connection });
    const workflowId = `train/${spec.name}`;
    await startTraining(client, spec);
    const store = await openStore(stack.addresses.store);
    const steps = phasesOf(spec).at(-1)?.last ?? 0;
    const trial = { over: false, steps, step: () => lastCommittedStep(store, spec.name) };
    const began = performance.now();
    const killing = killAtRandom(stack, options, trial);
    await untilClosed(client, workflowId, failures).finally(() => {
      trial.over = true;
    });
    const seconds = (performance.now() - began) / 1000;
    return { chain: await auditRun(store, spec.name), kills: await killing, seconds };
  } finally {
    await connection.close();
    await stack.stop();
    if (options.keep) options.log(`  kept: ${folder}`);
    else await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Moments are drawn over the run's steps, not over its time: each lies somewhere within a step of its own choice, so that they
 * spread over warm start, rollouts, updates and evaluations however long a recovery takes.
 */
async function killAtRandom(stack: Stack, options: TrialOptions, trial: OpenTrial): Promise<Kill[]> {
  const { random, log } = options;
  const moments = Array.from({ length: options.kills }, () => ({
    afterStep: random.below(trial.steps) - 1,
    delayMs: random.next() * options.longestDelayMs,
    victim: random.pick(victimNames),
  })).sort((a, b) => a.afterStep - b.afterStep);
  const kills: Kill[] = [];
  const started = performance.now();
  for (const { afterStep, delayMs, victim } of moments) {
    while (!trial.over && (await trial.step()) < afterStep) await delay(20);
    await delay(delayMs);
    const pid = await killed(stack, victim, trial);
    if (pid === null) break;
    const step = await trial.step();
    const atMs = Math.round(performance.now() - started);
    kills.push({ victim, atMs, pid, step });
    log(`  ${(atMs / 1000).toFixed(1).padStart(6)} s  killed ${victim} (${pid}) in step ${step + 1}`);
  }
  return kills;
}

/** Id of the process that died; null where the run ended before one could. */
async function killed(stack: Stack, victim: VictimName, trial: OpenTrial): Promise<number | null> {
  while (!trial.over) {
    const pid = pidOf(stack, victim);
    try {
      if (pid !== null && process.kill(pid, 'SIGKILL')) return pid;
    } catch {
      // It has just ended by itself, as an engine does whose node was killed.
    }
    await delay(10);
  }
  return null;
}

/** The server itself dies in between: every question has a deadline and is asked again. */
async function untilClosed(client: Client, workflowId: string, failures: Error[]): Promise<void> {
  const deadline = Date.now() + trialDeadlineMs;
  for (;;) {
    const gaveUp = failures[0];
    if (gaveUp) throw gaveUp;
    if (Date.now() > deadline)
      throw new Error(`${workflowId} did not end within ${trialDeadlineMs / 60_000} minutes`);
    const handle = client.workflow.getHandle(workflowId);
    const description = await client
      .withDeadline(Date.now() + 3_000, () => handle.describe())
      .catch(() => null);
    const status = description?.status.name;
    if (status === 'COMPLETED') return;
    if (status !== undefined && status !== 'RUNNING' && status !== 'CONTINUED_AS_NEW') {
      throw new Error(`${workflowId} ended as ${status}: ${await failureOf(client, workflowId)}`);
    }
    const state = await client
      .withDeadline(Date.now() + 3_000, () => handle.query<{ blocked: { reason: string } | null }>('status'))
      .catch(() => null);
    if (state?.blocked) throw new Error(`${workflowId} is blocked: ${state.blocked.reason}`);
    await delay(250);
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
