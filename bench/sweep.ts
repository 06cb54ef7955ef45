// A sweep over a run's checkpoints on the embedded stack: how long it takes and what memory it takes, what one with nothing new takes, and
// whether one whose processes are killed plays every episode once and comes to the same table.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, WorkflowFailedError } from '@temporalio/client';
import { auditRun } from '../src/activities/reports/audit-run.js';
import { comparisonOf } from '../src/activities/evaluation/compare-sweep.js';
import { startTraining } from '../src/cli/train/start-training.js';
import type { RunSpec } from '../src/spec/run-spec.js';
import { canonicalText } from '../src/store/records/canonical.js';
import { evaluationsOfState, tallyKey } from '../src/store/objects/layout.js';
import type { ObjectStore } from '../src/store/objects/object-store.js';
import { openStore } from '../src/store/open-store.js';
import { readSweep } from '../src/store/evaluations/sweeps.js';
import { findEngineBinary } from '../src/workers/process/engine-binary.js';
import { freePort } from '../src/stack/free-port.js';
import { type Stack, type StackScripts, startStack } from '../src/stack/stack.js';
import { openConnection } from '../src/workers/temporal/temporal-connection.js';
import type { evalSweep } from '../src/workflows/sweep/eval-sweep.js';
import { orchestratorQueue } from '../src/workflows/messages.js';
import type { SweepResult } from '../src/workflows/sweep/sweep-messages.js';
import { seededRandom } from '../test/chaos/random.js';
import { childOf, MemorySamples, toMib } from './process-memory.js';

export interface SuiteShape {
  tasks: number;
  samples: number;
}

export interface SweepPlan {
  /** Of the run whose newest checkpoints are evaluated. */
  spec: RunSpec;
  checkpoints: number;
  suite: SuiteShape;
  /** Another sweep over them, whose processes are killed. */
  killed: SuiteShape & { kills: number; seed: number };
  deadlineMs: number;
  /** Of compiled code; by default that of the stack's own build. */
  scripts?: Partial<StackScripts>;
  log(message: string): void;
}

export interface SweepFigures {
  episodes: number;
  seconds: number;
  orchestrator_mib: number;
  node_mib: number;
  engine_mib: number;
  /** Resident memory in the last quarter of the sweep's time over that in the second one, minus 1. */
  orchestrator_growth: number;
  node_growth: number;
  engine_growth: number;
  again_seconds: number;
  again_episodes: number;
  /** That met the sweep while it was open. */
  kills: number;
  /** Of the audit after them: an episode that was sampled again, above all. */
  violations: number;
  /** 1: its table is that of a sweep over the same that nobody killed. */
  equal: number;
}

const sampleEveryMs = 500;
/** Of which the memory is watched. */
const remembered = ['orchestrator', 'node', 'engine'] as const;
const victims = ['node', 'orchestrator', 'engine', 'temporal'] as const;

export async function measureSweep(plan: SweepPlan): Promise<SweepFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-sweep-'));
  const stack = await startStack({
    folder,
    engine: findEngineBinary(),
    log: () => undefined,
    gaveUp: (error) => process.stderr.write(`${error.message}\n`),
    temporalPort: await freePort(),
    uiPort: await freePort(),
    ...(plan.scripts ? { scripts: plan.scripts } : {}),
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    const bench = new SweepBench(
      plan,
      stack,
      new Client({ connection }),
      await openStore(stack.addresses.store),
    );
    await bench.train();
    return { ...(await bench.measure()), ...(await bench.again()), ...(await bench.withKills()) };
  } finally {
    await connection.close();
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

class SweepBench {
  constructor(
    private readonly plan: SweepPlan,
    private readonly stack: Stack,
    private readonly client: Client,
    private readonly store: ObjectStore,
  ) {}

  async train(): Promise<void> {
    const { handle } = await startTraining(this.client, this.plan.spec);
    const { ended, step } = await handle.result();
    if (ended !== 'completed') throw new Error(`the run ${ended} after step ${step}`);
    this.plan.log(`trained ${step} steps`);
  }

  async measure(): Promise<
    Omit<SweepFigures, 'again_seconds' | 'again_episodes' | 'kills' | 'violations' | 'equal'>
  > {
    const memory = new MemorySamples();
    let sample = 0;
    const begun = performance.now();
    const result = await this.sweep('measured', this.plan.suite, {}, async (over) => {
      while (!over()) {
        memory.take(sample++, Object.fromEntries(remembered.map((name) => [name, this.pidOf(name)])));
        await delay(sampleEveryMs);
      }
    });
    const seconds = (performance.now() - begun) / 1_000;
    const quarter = (name: string, n: number): number =>
      memory.medianBytes(name, Math.floor((n * sample) / 4), Math.floor(((n + 1) * sample) / 4));
    const growth = (name: string): number => quarter(name, 3) / quarter(name, 1) - 1;
    this.plan.log(`${result.episodes} episodes in ${seconds.toFixed(1)} s`);
    return {
      ...{ episodes: result.episodes, seconds },
      ...{ orchestrator_mib: toMib(quarter('orchestrator', 3)), node_mib: toMib(quarter('node', 3)) },
      engine_mib: toMib(quarter('engine', 3)),
      ...{ orchestrator_growth: growth('orchestrator'), node_growth: growth('node') },
      engine_growth: growth('engine'),
    };
  }

  async again(): Promise<Pick<SweepFigures, 'again_seconds' | 'again_episodes'>> {
    const begun = performance.now();
    const { episodes } = await this.sweep('again', this.plan.suite);
    return { again_seconds: (performance.now() - begun) / 1_000, again_episodes: episodes };
  }

  async withKills(): Promise<Pick<SweepFigures, 'kills' | 'violations' | 'equal'>> {
    const { killed, spec } = this.plan;
    let kills = 0;
    // Another seed makes it another suite, of which nothing is played.
    const other = { seed: spec.seed + 1 };
    await this.sweep('killed', killed, other, async (over) => {
      kills = await this.kill(over);
    });
    const { violations } = await auditRun(this.store, spec.name);
    for (const { key, problem } of violations.slice(0, 5)) this.plan.log(`${key}: ${problem}`);
    const table = await this.tableOf('killed');
    await this.forget('killed');
    await this.sweep('calm', killed, other);
    return { kills, violations: violations.length, equal: Number(table === (await this.tableOf('calm'))) };
  }

  /** Answers how many of the kills met the sweep; each comes some episodes after the one before. */
  private async kill(over: () => boolean): Promise<number> {
    const { killed, checkpoints } = this.plan;
    const random = seededRandom(killed.seed);
    const share = Math.floor((checkpoints * killed.tasks * killed.samples) / (killed.kills + 1));
    let met = 0;
    let reached = await this.episodes();
    for (let kill = 0; kill < killed.kills && !over(); kill++) {
      const from = reached;
      const next = from + 1 + random.below(Math.max(share, 1));
      while (!over() && (reached = await this.episodes()) < next) await delay(50);
      const victim = victims[random.below(victims.length)] ?? 'node';
      const pid = this.pidOf(victim);
      if (over() || pid === null) continue;
      process.kill(pid, 'SIGKILL');
      met += 1;
      this.plan.log(`killed ${victim} after ${reached} episodes`);
      const deadline = Date.now() + 60_000;
      while ([pid, null].includes(this.pidOf(victim)) && Date.now() < deadline) await delay(100);
    }
    return met;
  }

  private pidOf(name: (typeof victims)[number]): number | null {
    const process = this.stack.processes.find((one) => one.name === (name === 'engine' ? 'node' : name));
    const pid = process?.pid ?? null;
    return name === 'engine' ? childOf(pid, 'longhaul-engine') : pid;
  }

  private async episodes(): Promise<number> {
    let found = 0;
    for await (const { key } of this.store.list('evals/')) found += Number(key.includes('/episodes/'));
    return found;
  }

  /** `beside` goes on until the sweep is over. Throws where it is not whole. */
  private async sweep(
    name: string,
    { tasks, samples }: SuiteShape,
    more: object = {},
    beside: (over: () => boolean) => Promise<void> = () => Promise.resolve(),
  ): Promise<SweepResult> {
    const { spec, checkpoints } = this.plan;
    const sweep = {
      ...{ name, project: spec.project, checkpoints: [{ run: spec.name, latest: checkpoints }] },
      suites: [{ name: 'held-out', max_tasks: tasks, samples, ...more }],
    };
    const workflowId = `eval/${spec.project}/${name}`;
    await this.client.workflow.start<typeof evalSweep>('evalSweep', {
      ...{ taskQueue: orchestratorQueue, workflowId, args: [sweep] },
      workflowTaskTimeout: '5 seconds',
    });
    let over = false;
    const ended = this.resultOf(workflowId).finally(() => (over = true));
    const [result] = await Promise.all([ended, beside(() => over)]);
    if (result.ended !== 'completed' || result.pairs !== checkpoints)
      throw new Error(`the sweep ${name} is not whole: ${JSON.stringify(result).slice(0, 400)}`);
    return result;
  }

  /** The server may be away for a while. */
  private async resultOf(workflowId: string): Promise<SweepResult> {
    const deadline = Date.now() + this.plan.deadlineMs;
    for (;;) {
      try {
        return await this.client.withDeadline(Date.now() + 30_000, () =>
          this.client.workflow.getHandle<typeof evalSweep>(workflowId).result(),
        );
      } catch (error) {
        if (error instanceof WorkflowFailedError || Date.now() > deadline) throw error;
        await delay(200);
      }
    }
  }

  private async tableOf(name: string): Promise<string> {
    const record = await readSweep(this.store, `${this.plan.spec.project}/${name}`);
    const { suites, rows } = await comparisonOf(this.store, record);
    return canonicalText({ suites, rows });
  }

  /** As if nothing of the sweep had ever been played. */
  private async forget(name: string): Promise<void> {
    const record = await readSweep(this.store, `${this.plan.spec.project}/${name}`);
    for (const { state } of record.checkpoints) {
      for (const { digest } of record.suites) {
        const keys: string[] = [];
        for await (const { key } of this.store.list(`${evaluationsOfState(state)}${digest}/`)) keys.push(key);
        for (const key of keys) await this.store.delete(key);
        await this.store.delete(tallyKey(state, digest));
      }
    }
  }
}
