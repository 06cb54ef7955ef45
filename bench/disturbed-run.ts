// A run whose steps take ten seconds and more, with faults in a tenth of them: each process of the stack is killed once. What
// that costs is read from its records, from what its engines were asked for, and from when each process served again.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Recovery, RecoveryCause } from '../src/spec/records.js';
import type { RunSpec } from '../src/spec/run-spec.js';
import { readAttemptsIn } from '../src/store/fault-figures.js';
import type { ObjectStore } from '../src/store/object-store.js';
import { openStore } from '../src/store/open-store.js';
import { readUpdate } from '../src/store/run-records.js';
import { seededRandom } from '../test/chaos/random.js';
import { type OpenTrial, runTrial } from '../test/chaos/trial.js';
import { signalled, victimNames, type VictimName } from '../test/chaos/victims.js';
import { findEngine } from '../test/support/find-tools.js';
import { type CommittedAt, effectiveTime } from './effective-time.js';
import { lostWork, readComputed } from './lost-work.js';
import { repository } from './repository.js';
import { steadyRun } from './steady-run.js';

export interface DisturbedFigures {
  steps: number;
  disturbed_steps: number;
  step_seconds: number;
  step_spread: number;
  ettr: number;
  /** The same as the run's own records have it: one less what faults have cost. */
  ettr_recorded: number;
  /** Largest, of what the run's records say: from the death until somebody knew of it. */
  engine_detection_seconds: number;
  worker_detection_seconds: number;
  /** After a kill, of any process: turns of one episode that were sampled again, and updates that were computed again. */
  turns_again_max: number;
  updates_again_max: number;
  episodes_again: number;
  /** Share of the time of the steps that no fault met in which an update waited for the writer of a checkpoint. */
  stall_share: number;
  violations: number;
  secrets_found: number;
  sessions_leaked: number;
}

export interface DisturbedRun {
  /** GRPO steps, of which the first is not counted. */
  steps: number;
  /** Those in which a process is killed, one each. */
  struck: readonly number[];
  victims: readonly VictimName[];
  shape: SlowSteps;
  seed: number;
}

/** What makes a step long: the model, and how many episodes it plays. */
export interface SlowSteps {
  hidden_size: number;
  layers: number;
  groups: number;
  samples: number;
}

/** 11 million parameters: a checkpoint of 130 MB. */
export const tenSeconds: SlowSteps = { hidden_size: 384, layers: 6, groups: 12, samples: 64 };

/** What is read from the records before the run's folder is gone. */
interface Seen {
  commits: CommittedAt[];
  /** Milliseconds by step. */
  stalls: Map<number, number>;
  recoveries: Recovery[];
  ettr: number;
}

interface Kill {
  victim: VictimName;
  /** Of the machine's clock, ms. */
  at: number;
}

/** Throws where a kill met no open run. `keep`: called with the store before it is gone. */
export async function measureDisturbedRun(
  plan: DisturbedRun,
  log: (message: string) => void = () => undefined,
  keep: (store: ObjectStore, run: string) => Promise<void> = async () => undefined,
): Promise<DisturbedFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-bench-disturbed-'));
  const asked = join(folder, 'asked.jsonl');
  const seen: Seen = { commits: [], stalls: new Map(), recoveries: [], ettr: Number.NaN };
  try {
    const spec = await slowRun(join(folder, 'data'), plan);
    const engine = join(folder, 'engine');
    const tap = join(repository, 'test/support/engine-tap.mjs');
    writeFileSync(
      engine,
      `#!/bin/sh\nexec '${process.execPath}' '${tap}' '${asked}' '${findEngine()}' "$@"\n`,
    );
    chmodSync(engine, 0o755);
    writeFileSync(asked, '');
    const { chain, history, secretsIn, leakedSessions, disturbances } = await runTrial<Kill>({
      spec,
      keep: false,
      deadlineMs: 30 * 60_000,
      surround: async (_folder, own) => ({ spec: own, engine, stop: async () => undefined }),
      disturb: async (trial) => {
        const kills = await killEach(trial, plan, log);
        while (!trial.over && (await trial.step()) < trial.steps) await delay(100);
        const store = await openStore(trial.stack.addresses.store);
        await readSteps(store, spec.name, trial.steps, seen);
        await keep(store, spec.name);
        return kills;
      },
      log,
    });
    if (disturbances.length < plan.victims.length)
      throw new Error(`only ${disturbances.length} of ${plan.victims.length} kills met an open run`);
    const faults = disturbances.map(({ at }) => at);
    const time = effectiveTime(seen.commits, faults);
    const lost = lostWork(readComputed(asked), faults);
    for (const [index, { victim }] of disturbances.entries())
      log(`${victim}: ${JSON.stringify(lost[index])}`);
    return {
      steps: time.steps,
      disturbed_steps: time.disturbed,
      step_seconds: time.step_seconds,
      step_spread: time.step_spread,
      ettr: time.ettr,
      ettr_recorded: seen.ettr,
      engine_detection_seconds: detection(seen, ['engine_exit']),
      worker_detection_seconds: detection(seen, ['worker_restart', 'orchestrator_restart']),
      turns_again_max: Math.max(...lost.map(({ turns }) => turns)),
      updates_again_max: Math.max(...lost.map(({ updates }) => updates)),
      episodes_again: lost.reduce((sum, { episodes }) => sum + episodes, 0),
      stall_share: stallShare(seen, faults),
      violations: chain.violations.length + history.violations.length,
      secrets_found: secretsIn.length,
      sessions_leaked: leakedSessions,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Each victim once, at a seeded moment within its step. */
async function killEach(
  trial: OpenTrial,
  { struck, victims, seed }: DisturbedRun,
  log: (message: string) => void,
): Promise<Kill[]> {
  const random = seededRandom(seed);
  const kills: Kill[] = [];
  let began = performance.now();
  for (const [index, victim] of victims.entries()) {
    const step = (struck[index] ?? 0) + 1;
    let last = await trial.step();
    let stepMs = 0;
    while (!trial.over && last < step - 1) {
      await delay(20);
      const now = await trial.step();
      if (now === last) continue;
      [stepMs, began, last] = [performance.now() - began, performance.now(), now];
    }
    await delay(random.next() * 0.9 * stepMs);
    if ((await signalled(trial, victim, 'SIGKILL')) === null) break;
    kills.push({ victim, at: Date.now() });
    log(`killed ${victim} in step ${step}`);
  }
  return kills;
}

/** The supervised step is not among them: its work is another. */
async function readSteps(store: ObjectStore, run: string, last: number, seen: Seen): Promise<void> {
  for (let step = 2; step <= last; step++) {
    const { observed } = await readUpdate(store, run, step);
    seen.commits.push({ step, at: Date.parse(observed.committed_at) });
    seen.stalls.set(step, observed.timings_ms['checkpoint_stall'] ?? 0);
    seen.ettr = observed.metrics['ft/ettr'] ?? Number.NaN;
    const attempts = await readAttemptsIn(store, run, step);
    seen.recoveries.push(...attempts.flatMap((attempt) => attempt.observed.recoveries ?? []));
  }
}

/** Largest in seconds; NaN, which meets no bar, where no record tells of such a death. */
function detection({ recoveries }: Seen, causes: readonly RecoveryCause[]): number {
  const seconds = recoveries.flatMap(({ cause, detection_seconds }) =>
    causes.includes(cause) ? [detection_seconds] : [],
  );
  return seconds.length === 0 ? Number.NaN : Math.max(...seconds);
}

function stallShare({ commits, stalls }: Seen, faults: readonly number[]): number {
  let [stalled, all] = [0, 0];
  for (const [index, { step, at }] of commits.slice(1).entries()) {
    const from = commits[index]?.at ?? at;
    if (faults.some((fault) => fault > from && fault <= at)) continue;
    stalled += stalls.get(step) ?? 0;
    all += at - from;
  }
  return stalled / all;
}

/** Its one supervised step comes first; the learning rate after it is close to nothing, so that all steps are alike. */
async function slowRun(folder: string, { steps, shape }: DisturbedRun): Promise<RunSpec> {
  const spec = await steadyRun(folder, { name: 'disturbed', steps: steps + 1 });
  const { hidden_size, layers, groups, samples } = shape;
  const heads = hidden_size / 32;
  return {
    ...spec,
    model: {
      ...spec.model,
      name: 'slow',
      architecture: {
        ...spec.model.architecture,
        ...{ hidden_size, intermediate_size: 3 * hidden_size, num_hidden_layers: layers },
        ...{ num_attention_heads: heads, num_key_value_heads: heads / 2 },
      },
    },
    warm_start: spec.warm_start.map((phase) => ({ ...phase, lr: phase.lr / Math.max(1, hidden_size / 64) })),
    generator: { ...spec.generator, max_turns: 3, n_samples_per_prompt: samples },
    trainer: { ...spec.trainer, train_batch_size: groups, ckpt_interval: 5 },
  };
}

export const eachVictimOnce = (seed: number): VictimName[] => {
  const random = seededRandom(seed);
  const left = [...victimNames];
  return victimNames.map(() => left.splice(random.below(left.length), 1)[0] as VictimName);
};
