// One training run on a stack of its own, with or without kills; its verdict comes from the store alone.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, Connection } from '@temporalio/client';
import { findEngine } from '../support/find-tools.js';
import type { Random } from './random.js';
import { pidOf, victimNames, type VictimName } from './victims.js';
import { readSpecFile } from '../../src/spec/schema.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { auditChain, type ChainAudit } from '../../src/store/chain-audit.js';
import { openStore } from '../../src/store/open-store.js';
import { startStack, type Stack } from '../../src/workers/stack.js';

export interface Kill {
  victim: VictimName;
  atMs: number;
  pid: number;
}

export interface TrialResult {
  chain: ChainAudit;
  kills: Kill[];
  seconds: number;
}

export interface TrialOptions {
  preset: string;
  seed: number;
  kills: number;
  random: Random;
  /** Longest pause between two kills; shorter ones are as likely. */
  longestPauseMs: number;
  change?: (spec: RunSpec) => RunSpec;
  log(message: string): void;
}

const trialDeadlineMs = 10 * 60_000;

/** Kills until `kills` were delivered while the run was open; the run must outlast them. */
export async function runTrial(options: TrialOptions): Promise<TrialResult> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-chaos-'));
  const started = performance.now();
  const failures: Error[] = [];
  const stack = await startStack({
    folder,
    engine: findEngine(),
    log: () => undefined,
    gaveUp: (error) => failures.push(error),
  });
  const connection = Connection.lazy({ address: stack.addresses.temporal });
  try {
    const spec = await trialSpec(options);
    const client = new Client({ connection });
    const workflowId = `train/${spec.name}`;
    await client.workflow.start('trainingRun', { args: [spec], taskQueue: 'longhaul', workflowId });
    const run = { over: false };
    const killing = killAtRandom(stack, options, run);
    await untilClosed(client, workflowId, failures);
    run.over = true;
    const kills = await killing;
    const chain = await auditChain(await openStore(stack.addresses.store), spec.name);
    return { chain, kills, seconds: (performance.now() - started) / 1000 };
  } finally {
    await connection.close().catch(() => undefined);
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function trialSpec(options: TrialOptions): Promise<RunSpec> {
  const spec = { ...(await readSpecFile(options.preset)), name: `chaos-${options.seed}`, seed: options.seed };
  return options.change?.(spec) ?? spec;
}

async function killAtRandom(stack: Stack, options: TrialOptions, run: { over: boolean }): Promise<Kill[]> {
  const { random } = options;
  const kills: Kill[] = [];
  const started = performance.now();
  while (kills.length < options.kills && !run.over) {
    await delay(random.next() * options.longestPauseMs);
    const victim = random.pick(victimNames);
    let pid = pidOf(stack, victim);
    while (pid === null && !run.over) {
      await delay(10);
      pid = pidOf(stack, victim);
    }
    if (pid === null || run.over) break;
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      continue;
    }
    const atMs = Math.round(performance.now() - started);
    kills.push({ victim, atMs, pid });
    options.log(`  ${(atMs / 1000).toFixed(1).padStart(6)} s  killed ${victim} (${pid})`);
  }
  return kills;
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
