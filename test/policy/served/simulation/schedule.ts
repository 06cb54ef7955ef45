// Derives a schedule from a seed: the runs, how often processes are switched, and how often each fault happens.
import { Random } from './random.js';
import type { ScriptOptions } from './script.js';

/** The share of each kind among all faults; an absent kind never happens. */
export type Faults = Partial<Record<FaultKind, number>>;

export const faultKinds = [
  'kill',
  /** A process freezes, and continues later. */
  'freeze',
  /** Another process takes over from one that is still working. */
  'take-over',
  'restart',
  /** The server restarts, and the files of all saved states are gone. */
  'wipe',
  /** A load gives an older state, or another run's. */
  'wrong-load',
  /** The server restarts before it has carried out the requests that it accepted. */
  'cut-off',
  'evict',
  /** Minutes pass, so that sessions without heartbeats end. */
  'lapse',
  /** The answer of a call is lost. */
  'lost',
  'doubled',
  /** A request arrives late, after its sender has concluded that it was lost. */
  'delayed',
  /**
   * The same for a sample, which on SkyRL's JAX backend replaces the trainer's weights: between the passes and the step of an update nobody
   * notices it. Only on request.
   */
  'late-sample',
  /** A call is answered with 503, and the poll for a result with 410. */
  'erring',
  'away',
  /** The server delays the execution of requests. */
  'slow',
] as const;
export type FaultKind = (typeof faultKinds)[number];

export interface Schedule {
  seed: number;
  script: ScriptOptions;
  /** One in so many operations lets another process go first. */
  switchEvery: number;
  /** One in so many operations meets a fault. */
  faultEvery: number;
  mostFaults: number;
  faults: Faults;
  /** True if loads of missing files report no error. */
  lies: boolean;
  /** Share of steps that are followed by an evaluation on the same node, by one on another node, or by a checkpoint. */
  evaluations: number;
  visitors: number;
  checkpoints: number;
}

export type Changes = Partial<Omit<Schedule, 'seed' | 'script'>> & { script?: Partial<ScriptOptions> };

/** The schedule with other settings, such as a single kind of fault. */
export function changed(schedule: Schedule, { script, ...changes }: Changes): Schedule {
  return { ...schedule, ...changes, script: { ...schedule.script, ...script } };
}

/** Plans and batches are made once for all schedules of a script. */
const scripts = 96;

export function scheduleOf(seed: number): Schedule {
  const random = new Random(seed);
  const kinds = faultKinds.filter((kind) => random.chance(0.35) && kind !== 'late-sample');
  const faults: Faults = Object.fromEntries(kinds.map((kind) => [kind, 1 + random.below(4)]));
  return {
    seed,
    script: scriptOf(random.below(scripts)),
    switchEvery: random.pick([3, 10, 40, 150]),
    faultEvery: random.pick([30, 100, 300]),
    mostFaults: kinds.length === 0 ? 0 : random.pick([1, 2, 3, 5, 8]),
    faults,
    lies: random.chance(0.7),
    evaluations: random.pick([0, 0.2, 0.5]),
    visitors: random.pick([0, 0, 0.3, 0.6]),
    checkpoints: random.pick([0, 0, 0.3]),
  };
}

export function scriptOf(number: number): ScriptOptions {
  const random = new Random(1_000_003 + number);
  const steps = random.pick([4, 4, 4, 5, 5, 6, 8]);
  const saveEvery = random.pick([1, 1, 2, 3, 6]);
  return {
    ...{ number, steps, saveEvery },
    movement: random.pick([0.01, 0.01, 0.01, 0.001, 0.05, 0.3]),
    numbered: !random.chance(0.2),
    rescored: random.chance(0.2),
    phase: saveEvery === 1 && random.chance(0.25) ? 2 + random.below(steps - 1) : null,
    poisoned: random.chance(0.1) ? 1 + random.below(steps) : null,
    fork: random.chance(0.25) ? 1 + random.below(steps - 1) : null,
  };
}
