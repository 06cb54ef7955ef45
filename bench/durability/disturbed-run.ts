// Runs a training with steps of at least ten seconds and kills each process of the stack once, so that a tenth of the steps is disturbed.
// Reads the cost of the kills from the run's records, from the requests to its engines, and from the times at which each process served
// again.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { readFaults } from '../../src/store/runs/fault-figures.js';
import { readRun, readUpdate } from '../../src/store/runs/run-records.js';
import type { StackScripts } from '../../src/stack/process-plans.js';
import { seededRandom } from '../../test/chaos/random.js';
import { type OpenTrial, runTrial } from '../../test/chaos/trial.js';
import { isBusy, pidOf, sent, signalled, victimNames, type VictimName } from '../../test/chaos/victims.js';
import { findEngine } from '../../test/support/find-tools.js';
import { attemptsOfNode, type OpenAttempt, untilKnown, untilTakenOver } from './detection.js';
import { type CommittedAt, effectiveTime } from './effective-time.js';
import { median } from '../figures/figure.js';
import { episodesInFlight, lostWork, readComputed, recordedAt } from '../../test/support/lost-work.js';
import { repository } from '../repository.js';
import { steadyRun } from './steady-run.js';

export interface DisturbedFigures {
  steps: number;
  /** Steps in which a process was killed. */
  disturbed_steps: number;
  step_seconds: number;
  ettr: number;
  /** `ft/ettr` in the run's own records. */
  ettr_recorded: number;
  /** From an engine's kill until the Temporal server knows that all attempts which the kill ended have failed. */
  engine_detection_seconds: number;
  /**
   * The larger of two times: from a node worker's kill until the Temporal server knows that the worker's attempts have failed, and from an
   * orchestrator's kill until its successor has taken over its folder.
   */
  worker_detection_seconds: number;
  /** Kills that happened while episodes were in flight. */
  kills_amid_episodes: number;
  /** Maximum over the kills: turns of one episode that were sampled again, and updates that were computed again. */
  turns_again_max: number;
  updates_again_max: number;
  /** Maximum over the kills: computed updates of steps that were already committed. They were applied again to the last state on disk. */
  updates_replayed_max: number;
  /** Share of the undisturbed steps' time in which an update waited for a checkpoint to be written. */
  stall_share: number;
}

export interface DisturbedRun {
  /** Number of GRPO steps. The figures do not count the first step. */
  steps: number;
  /** Steps in which a process is killed, one process each. */
  struck: readonly number[];
  victims: readonly VictimName[];
  shape: SlowSteps;
  seed: number;
}

/** The settings that determine the duration of a step: the size of the model and the number of episodes. */
export interface SlowSteps {
  hidden_size: number;
  layers: number;
  groups: number;
  samples: number;
}

/** 11 million parameters, so a checkpoint of 130 MB. A larger model does not learn the short answers in its warm start. */
const slowSteps: SlowSteps = { hidden_size: 384, layers: 6, groups: 22, samples: 64 };
/** Steps of a run without faults, which show how fast this machine is. The first step is not counted. */
const calibrationSteps = 5;

/** The values that are read from the records before the run's folder is deleted. */
interface Seen {
  commits: CommittedAt[];
  /** Ids of the updates, by step. */
  stepIds: Map<number, string>;
  /** Wait for the writer of a checkpoint, in ms, by step. */
  stalls: Map<number, number>;
  /** When the store received each episode's record, ms, by key; for the struck steps. */
  recorded: Map<string, number>;
  ettr: number;
}

interface Kill {
  victim: VictimName;
  /** Unix time, ms. */
  at: number;
  /** Last committed step at the kill. */
  committed: number;
  /** Time until the death was noticed; null for a victim whose detection is not measured. */
  detectionSeconds: number | null;
}

/** Runs 51 steps of about 13 s, with five kills. */
export async function measureDurability(): Promise<DisturbedFigures> {
  const log = (message: string): void => void process.stderr.write(`  ${message}\n`);
  // A step must take ten seconds. Aim at more, because a machine's speed changes.
  const shape = await stepsOf(13, log);
  const figures = await measureDisturbedRun(
    { ...{ steps: 51, struck: [6, 14, 27, 38, 45], seed: 1 }, victims: eachVictimOnce(1), shape },
    log,
  );
  if (figures.disturbed_steps < 0.1 * figures.steps)
    throw new Error(`only ${figures.disturbed_steps} of ${figures.steps} steps were disturbed`);
  if (figures.step_seconds < 10) throw new Error(`a step took ${figures.step_seconds} s, not ten`);
  return figures;
}

/** Throws if the run was over at a kill, if no kill happened while episodes were in flight, or if the audit finds a violation. */
export async function measureDisturbedRun(
  plan: DisturbedRun,
  log: (message: string) => void = () => undefined,
  scripts?: StackScripts,
): Promise<DisturbedFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-bench-disturbed-'));
  const asked = join(folder, 'asked.jsonl');
  const seen: Seen = {
    commits: [],
    stepIds: new Map(),
    stalls: new Map(),
    recorded: new Map(),
    ettr: Number.NaN,
  };
  try {
    const spec = await slowRun(join(folder, 'data'), plan);
    const engine = join(folder, 'engine');
    const tap = join(repository, 'test/support/preloads/engine-tap.mjs');
    writeFileSync(
      engine,
      `#!/bin/sh\nexec '${process.execPath}' '${tap}' '${asked}' '${findEngine()}' "$@"\n`,
    );
    chmodSync(engine, 0o755);
    writeFileSync(asked, '');
    const { chain, history, disturbances } = await runTrial<Kill>({
      spec,
      keep: false,
      deadlineMs: 30 * 60_000,
      surround: async (_folder, own) => ({ spec: own, engine, stop: async () => undefined }),
      disturb: async (trial) => {
        const kills = await killEach(trial, plan, asked, log);
        while (!trial.over && (await trial.step()) < trial.steps) await delay(100);
        const store = await openStore(trial.stack.addresses.store);
        await readSteps(store, spec.name, trial.steps, seen);
        for (const { committed } of kills)
          for (const [key, at] of await recordedAt(store, spec.name, committed + 1))
            seen.recorded.set(key, at);
        return kills;
      },
      ...(scripts ? { scripts } : {}),
      log,
    });
    const violations = [...chain.violations, ...history.violations];
    if (violations.length > 0) throw new Error(`the audit found ${JSON.stringify(violations)}`);
    if (disturbances.length < plan.victims.length)
      throw new Error(`only ${disturbances.length} of ${plan.victims.length} kills met an open run`);
    const faults = disturbances.map(({ at }) => at);
    const time = effectiveTime(seen.commits, faults);
    for (const { step, seconds } of time.costs)
      log(`step ${step} took ${seconds.toFixed(1)} s more than the steps around it`);
    const computed = readComputed(asked);
    const lost = lostWork(
      computed,
      disturbances.map(({ at, committed }) => ({ at, committed: idsUpTo(committed, seen.stepIds) })),
    );
    const inFlight = faults.map((at) => episodesInFlight(computed, at, spec.name, seen.recorded));
    for (const [index, { victim, detectionSeconds }] of disturbances.entries())
      log(`${victim}: ${JSON.stringify({ ...lost[index], inFlight: inFlight[index], detectionSeconds })}`);
    const amidEpisodes = inFlight.filter((count) => count > 0).length;
    if (amidEpisodes === 0) throw new Error('no kill met episodes in flight: nothing could be lost');
    return {
      steps: time.steps,
      disturbed_steps: time.disturbed,
      step_seconds: time.step_seconds,
      ettr: time.ettr,
      ettr_recorded: seen.ettr,
      engine_detection_seconds: detection(disturbances, ['engine']),
      worker_detection_seconds: detection(disturbances, ['node', 'orchestrator']),
      kills_amid_episodes: amidEpisodes,
      turns_again_max: Math.max(...lost.map(({ turns }) => turns)),
      updates_again_max: Math.max(...lost.map(({ updates }) => updates)),
      updates_replayed_max: Math.max(...lost.map(({ replayed }) => replayed)),
      stall_share: stallShare(seen, faults),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Chooses the number of groups so that a step takes `seconds` on this machine. */
async function stepsOf(seconds: number, log: (message: string) => void): Promise<SlowSteps> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-bench-calibration-'));
  try {
    const spec = await slowRun(join(folder, 'data'), { steps: calibrationSteps, shape: slowSteps });
    const { disturbances } = await runTrial<number>({
      spec,
      keep: false,
      deadlineMs: 15 * 60_000,
      disturb: async (trial) => {
        const seen: CommittedAt[] = [];
        while (!trial.over && (await trial.step()) < trial.steps) await delay(100);
        for (let step = 2; step <= trial.steps; step++) {
          const { observed } = await readUpdate(trial.store, spec.name, step);
          seen.push({ step, at: Date.parse(observed.committed_at) });
        }
        return seen.slice(1).map(({ at }, index) => (at - (seen[index]?.at ?? at)) / 1000);
      },
      log,
    });
    const took = median(disturbances);
    const groups = Math.max(slowSteps.groups, Math.ceil((slowSteps.groups * seconds) / took));
    log(`steps of ${slowSteps.groups} groups take ${took.toFixed(1)} s here: measuring with ${groups}`);
    return { ...slowSteps, groups };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Kills each victim once, at a seeded moment of its step. Before the first, third, fifth … kill it also waits until a turn is sampled: long
 * steps spend most of their time in training, so at seeded moments alone all five kills could miss the episodes. `asked`: file with the
 * requests to the engines.
 */
async function killEach(
  trial: OpenTrial,
  { struck, victims, seed }: DisturbedRun,
  asked: string,
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
    if (trial.over) break;
    const { timings_ms } = (await readUpdate(trial.store, trial.spec.name, last)).observed;
    const amidEpisodes = index % 2 === 0;
    const struckMs = amidEpisodes ? stepMs - (timings_ms['policy_train'] ?? 0) : stepMs;
    await delay(random.next() * 0.9 * struckMs);
    if (amidEpisodes) await turnAfter(trial, asked);
    const kill = await killed(trial, victim);
    if (kill === null) break;
    kills.push(kill);
    log(`killed ${victim} in step ${kill.committed + 1}`);
  }
  return kills;
}

/** Resolves when the engine receives a request for a turn of a training episode. */
async function turnAfter(trial: OpenTrial, asked: string): Promise<void> {
  const file = await open(asked);
  try {
    const { size: position } = await file.stat();
    const found = async (): Promise<boolean> => {
      const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(1 << 16), position });
      return buffer.subarray(0, bytesRead).includes('"domain":"train"');
    };
    while (!trial.over && !(await found())) await delay(5);
  } finally {
    await file.close();
  }
}

async function killed(trial: OpenTrial, victim: VictimName): Promise<Kill | null> {
  const before = victim === 'engine' || victim === 'node' ? await heldAtWork(trial, victim) : null;
  const node = pidOf(trial, 'node');
  const pid = await signalled(trial, victim, 'SIGKILL');
  if (pid === null) return null;
  const at = Date.now();
  const committed = await trial.step();
  const detectionSeconds = before
    ? await untilKnown(trial, at, node, before)
    : victim === 'orchestrator'
      ? await untilTakenOver(trial, at, pid)
      : null;
  return { victim, at, committed, detectionSeconds };
}

/**
 * Waits until the node has attempts and its engine computes, because the death of an idle process goes unnoticed. Then stops the victim
 * (SIGSTOP) and returns the attempts: on a busy machine an attempt could otherwise end before the kill arrives.
 */
async function heldAtWork(trial: OpenTrial, victim: VictimName): Promise<OpenAttempt[]> {
  while (!trial.over) {
    const [engine, pid] = [pidOf(trial, 'engine'), pidOf(trial, victim)];
    if (engine !== null && pid !== null && isBusy(engine) && sent(pid, 'SIGSTOP')) {
      const attempts = await attemptsOfNode(trial);
      if (attempts.length > 0) return attempts;
      sent(pid, 'SIGCONT');
    }
    await delay(5);
  }
  return [];
}

/** Reads the commits of all steps except the supervised one, whose work is different. */
async function readSteps(store: ObjectStore, run: string, last: number, seen: Seen): Promise<void> {
  for (let step = 1; step <= last; step++) {
    const { identity, observed } = await readUpdate(store, run, step);
    seen.stepIds.set(step, identity.step_id);
    if (step === 1) continue;
    seen.commits.push({ step, at: Date.parse(observed.committed_at) });
    const stall = observed.timings_ms['checkpoint_stall'];
    if (stall !== undefined) seen.stalls.set(step, stall);
  }
  const { figures } = await readFaults(store, await readRun(store, run), last);
  seen.ettr = figures['ft/ettr'] ?? Number.NaN;
}

const idsUpTo = (step: number, stepIds: ReadonlyMap<number, string>): ReadonlySet<string> =>
  new Set([...stepIds].flatMap(([one, id]) => (one <= step ? [id] : [])));

/** Longest detection among the kills of these victims, in s. NaN, which meets no bar, if a kill ended no attempt. */
function detection(kills: readonly Kill[], victims: readonly VictimName[]): number {
  const seconds = kills.flatMap(({ victim, detectionSeconds }) =>
    victims.includes(victim) && detectionSeconds !== null ? [detectionSeconds] : [],
  );
  return seconds.length === 0 ? Number.NaN : Math.max(...seconds);
}

/**
 * Share of the undisturbed steps' time that was spent waiting for a checkpoint to be written. Throws if no undisturbed step followed a
 * checkpoint.
 */
export function stallShare(
  { commits, stalls }: Pick<Seen, 'commits' | 'stalls'>,
  faults: readonly number[],
): number {
  let [stalled, all, reporting] = [0, 0, 0];
  for (const [index, { step, at }] of commits.slice(1).entries()) {
    const from = commits[index]?.at ?? at;
    if (faults.some((fault) => fault > from && fault <= at)) continue;
    const stall = stalls.get(step);
    if (stall !== undefined) reporting += 1;
    // Only a step after a checkpoint can wait, and only such a step records its wait.
    stalled += stall ?? 0;
    all += at - from;
  }
  if (reporting === 0) throw new Error('no undisturbed step recorded how long it waited for a checkpoint');
  return stalled / all;
}

/** A run with one supervised step first. Later steps have a learning rate close to 0, so that all of them are alike. */
async function slowRun(
  folder: string,
  { steps, shape }: Pick<DisturbedRun, 'steps' | 'shape'>,
): Promise<RunSpec> {
  const spec = await steadyRun(folder, { name: 'disturbed', steps: steps + 1 });
  const { hidden_size, layers, groups, samples } = shape;
  const heads = hidden_size / 32;
  const { architecture } = spec.model;
  if (!architecture) throw new Error('a steady run draws its weights');
  return {
    ...spec,
    model: {
      ...spec.model,
      name: 'slow',
      architecture: {
        ...architecture,
        ...{ hidden_size, intermediate_size: 3 * hidden_size, num_hidden_layers: layers },
        ...{ num_attention_heads: heads, num_key_value_heads: heads / 2 },
      },
    },
    warm_start: spec.warm_start.map((phase) => ({ ...phase, lr: phase.lr / Math.max(1, hidden_size / 64) })),
    generator: { ...spec.generator, max_turns: 3, n_samples_per_prompt: samples },
    trainer: { ...spec.trainer, train_batch_size: groups, ckpt_interval: 5 },
  };
}

const eachVictimOnce = (seed: number): VictimName[] => {
  const random = seededRandom(seed);
  const left = [...victimNames];
  return victimNames.map(() => left.splice(random.below(left.length), 1)[0] as VictimName);
};
