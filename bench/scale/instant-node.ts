// Process entry of a node that computes nothing: it has no engine, no environment and no batch. After a set time it writes the records that
// the planning of the next step reads (base and updates, chained like real ones). It replaces a real node while the orchestrator is
// measured.
import { setTimeout as delay } from 'node:timers/promises';
import type { CommittedStep, NodeActivities, TransferActivities } from '../../src/activities/contracts.js';
import type { PlanRecord } from '../../src/spec/records/plan.js';
import type { UpdateRecord } from '../../src/spec/records/update.js';
import { stepIdOf } from '../../src/store/records/canonical.js';
import { sha256Hex } from '../../src/base/sha256.js';
import { updateKey } from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { recordFunction } from '../../src/store/records/records.js';
import { readPlan, readRun, readUpdateIfAny } from '../../src/store/runs/run-records.js';
import { readWorkerConfig } from '../../src/workers/process/config.js';
import { serveNode } from '../../src/workers/node/node-worker.js';
import { exitWith } from '../../src/workers/process/worker-exit.js';
import { installRuntime } from '../../src/workers/process/worker-log.js';

const numerics = { backend: 'cpu', version: 2 } as const;
const engine = { build: 'answers at once', incarnation: `pid ${process.pid}` };

const log = installRuntime('instant node', null);

/** Waits for as long as a step's work would take, and remembers when each run last committed a step. */
class TimedWork {
  private readonly busyMs = new Map<string, number>();
  private readonly commits = new Map<string, { step: number; at: number }>();

  constructor(private readonly stepMs: number) {}

  async take(run: string, share: number): Promise<void> {
    const begun = performance.now();
    if (this.stepMs > 0) await delay(this.stepMs * share);
    this.busyMs.set(run, (this.busyMs.get(run) ?? 0) + performance.now() - begun);
  }

  /** Timings as a real node records them: ms since the previous commit, and the part of this time that was work. */
  committed(run: string, step: number): Record<string, number> {
    const [before, at] = [this.commits.get(run), performance.now()];
    const timings: Record<string, number> =
      before?.step === step - 1 ? { step: at - before.at, in_flight: this.busyMs.get(run) ?? 0 } : {};
    this.commits.set(run, { step, at });
    this.busyMs.set(run, 0);
    return timings;
  }
}

function activities(
  store: ObjectStore,
  work: TimedWork,
): { node: NodeActivities; transfers: TransferActivities } {
  return {
    node: {
      commitBase: async ({ run }) => {
        const { base_model } = await readRun(store, run);
        const state = sha256Hex(`base of ${run}`);
        await recordFunction(store, updateKey(run, 0), 'base', {
          schema: 'longhaul.base/1',
          identity: { run, step: 0, base_model, state, numerics },
          observed: { engine, committed_at: new Date().toISOString() },
        });
        return { state };
      },
      collectRollouts: async ({ run, keep }) => {
        await work.take(run, 0.8);
        const kept = keep ? { seconds: 0 } : null;
        return { graded: 4, unknown: 0, mean_reward: 0.5, tokens: 100, seconds: 1, kept };
      },
      updatePolicy: async ({ run, step, plan }) => {
        await work.take(run, 0.2);
        const stored = await readUpdateIfAny(store, run, step);
        if (stored) return summary(stored);
        const record = await readPlan(store, { run, step, plan });
        const update = updateOf(record, plan, work.committed(run, step));
        return summary((await recordFunction(store, updateKey(run, step), 'update', update)).record);
      },
      evaluateState: async ({ suite }) => ({
        ...{ state: sha256Hex(suite), suite: sha256Hex(suite), suite_name: suite },
        ...{ pass_at_1: 0.5, graded: 2, unknown: 0 },
      }),
      saveState: async ({ step }) => ({ path: `state of step ${step}` }),
    },
    transfers: { uploadCheckpoint: async ({ run, step }) => ({ key: `${run}/${step}` }) },
  };
}

function updateOf(record: PlanRecord, plan: string, timings_ms: Record<string, number>): UpdateRecord {
  const { run, step, kind, previous_state } = record;
  const batch = sha256Hex(`batch of ${plan}`);
  const outcomes = record.kind === 'grpo' ? record.slots.map(() => [1, 0, 1, 0]) : [];
  return {
    schema: 'longhaul.update/4',
    identity: {
      ...{ run, step, kind, plan, batch, previous_state, numerics, outcomes, applied: true },
      state: sha256Hex(`${previous_state} and ${batch}`),
      step_id: stepIdOf(previous_state, batch, plan),
    },
    observed: {
      metrics: { 'reward/avg_raw_reward': 0.5 },
      ...{ timings_ms, engine, committed_at: new Date().toISOString() },
    },
  };
}

function summary({ identity, observed }: UpdateRecord): CommittedStep {
  const { step, kind, state } = identity;
  return { step, kind, state, applied: true, reason: null, metrics: observed.metrics };
}

await exitWith('instant node', async () => {
  const config = readWorkerConfig(process.argv.slice(2));
  const store = await openStore(config.store);
  const work = new TimedWork(Number(process.env['LONGHAUL_BENCH_WORK_MS'] ?? '0'));
  const parts = {
    ...activities(store, work),
    computesOn: () => ({ numerics, gpu: null }),
    close: () => Promise.resolve(),
  };
  await serveNode(config, () => parts, log);
});
