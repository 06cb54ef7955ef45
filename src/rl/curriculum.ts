// Chooses the tasks of a step. Pools of tasks, one for each template or each environment, are drawn in proportion to what can be learned
// from them; each task of a pool comes once per epoch.
import type { CurriculumState } from '../spec/records/plan.js';
import { hash32, hashText, permuted, uniform } from './random.js';

/** Weight of the newest mean in a pool's moving average. */
const momentum = 0.2;
/** Tolerance for rounding: 0.07 · 100 is 7.000000000000001. */
const shareTolerance = 1e-9;
/** Assumed pass rate of a pool that was never tried; it gives the highest weight. */
const untried = 0.5;

interface DrawnTask {
  /** The pool from which the task was drawn. */
  pool: string;
  /** Index into the pool's tasks, in data order. */
  index: number;
}

/** The training tasks of one template or of one environment. */
interface TaskPool {
  /** Number of tasks. */
  size: number;
  env: string;
}

/** How slots are shared among pools; `trainer.curriculum` and `trainer.balance` in the run spec. */
export interface CurriculumRules {
  /** 0: a pool's weight is its number of tasks. */
  floor: number;
  /** Largest share of a step's slots that one pool gets. */
  maxShare?: number | undefined;
  /** Factors of the weights, by environment. */
  weights?: Readonly<Record<string, number>> | undefined;
  /** Slots go to the environments in turn; the weights then choose among the environment's pools. */
  balanced?: boolean;
}

/** The number of slots that a share allows, rounded up. */
export function roundedUp(share: number, slots: number): number {
  return Math.ceil(share * slots - shareTolerance);
}

/** Pass rates after a step: for each pool, p += 0.2 · (mean − p) for the mean of each of its groups, in slot order. */
export function advancePassRates(
  rates: Readonly<Record<string, number>>,
  groups: readonly { pool: string; rewards: readonly (number | null)[] }[],
): Record<string, number> {
  const next = { ...rates };
  for (const { pool, rewards } of groups) {
    const graded = rewards.filter((reward) => reward !== null);
    if (graded.length === 0) continue;
    const mean = graded.reduce((sum, reward) => sum + reward, 0) / graded.length;
    const rate = next[pool] ?? untried;
    next[pool] = rate + momentum * (mean - rate);
  }
  return next;
}

/**
 * Draws the tasks of a step's slots. A pool's weight is p(1−p) + floor, times its environment's factor. A task is drawn twice in a step
 * only if its pool has no other left. A pure function; returns the tasks and the cursors after them.
 */
export function drawTasks(input: {
  pools: ReadonlyMap<string, TaskPool>;
  state: Pick<CurriculumState, 'pass_rates' | 'cursors'>;
  count: number;
  rules: CurriculumRules;
  seed: number;
  step: number;
  /** The tasks of the step's earlier slots, and how many of them its plan drew; absent for the plan itself. */
  earlier?: { tasks: readonly DrawnTask[]; planned: number };
}): { tasks: DrawnTask[]; cursors: Record<string, number> } {
  const { pools, state, count, rules, seed, step, earlier = { tasks: [], planned: count } } = input;
  const first = earlier.tasks.length;
  const names = [...pools.keys()].sort();
  if (names.length === 0) throw new Error('there is no task to train on');
  const weights = names.map((name) => weightOf(pools.get(name) as TaskPool, state.pass_rates[name], rules));
  const turns = [...new Set(names.map((name) => pools.get(name)?.env))].sort();
  const most = mostSlots(first + count, names.length, rules);
  const cursors = { ...state.cursors };
  const taken = new Map(names.map((name) => [name, new Set<number>()]));
  const slots = new Map<string, number>();
  for (const { pool, index } of earlier.tasks) {
    slots.set(pool, (slots.get(pool) ?? 0) + 1);
    taken.get(pool)?.add(index);
  }
  const tasks: DrawnTask[] = [];
  for (let slot = first; slot < first + count; slot++) {
    const turn = turns[(step * earlier.planned + slot) % turns.length];
    const open = names.map((name, at) => {
      const mayDraw = (slots.get(name) ?? 0) < most && (!rules.balanced || pools.get(name)?.env === turn);
      return mayDraw ? (weights[at] as number) : 0;
    });
    const pool = names[pickWeighted(open, uniform(seed, step, slot, 0x7a51))] as string;
    slots.set(pool, (slots.get(pool) ?? 0) + 1);
    const { size } = pools.get(pool) as TaskPool;
    tasks.push({ pool, index: nextTask(pool, size, cursors, taken.get(pool) as Set<number>, seed) });
  }
  return { tasks, cursors };
}

/** If too few pools exist for the largest share, they get equal shares: otherwise one pool would get all that is left. */
function mostSlots(slots: number, pools: number, { maxShare = 1 }: CurriculumRules): number {
  return Math.max(roundedUp(maxShare, slots), Math.ceil(slots / pools));
}

function weightOf({ size, env }: TaskPool, rate = untried, { floor, weights }: CurriculumRules): number {
  const weight = floor === 0 ? size : rate * (1 - rate) + floor;
  return weight * (weights?.[env] ?? 1);
}

/** Advances the pool's cursor to its next task, and marks that as used. */
function nextTask(
  pool: string,
  size: number,
  cursors: Record<string, number>,
  used: Set<number>,
  seed: number,
): number {
  for (;;) {
    const cursor = cursors[pool] ?? 0;
    cursors[pool] = cursor + 1;
    const index = taskAt(pool, cursor, size, seed);
    // A new epoch may begin with a task that this step has already drawn.
    if (used.has(index) && used.size < size) continue;
    used.add(index);
    return index;
  }
}

/** The task of a pool at place `cursor`; the order is shuffled again in each epoch. */
function taskAt(pool: string, cursor: number, size: number, seed: number): number {
  const epoch = Math.floor(cursor / size);
  return permuted(cursor % size, size, hash32(seed, hashText(pool), epoch));
}

function pickWeighted(weights: readonly number[], at: number): number {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let reached = 0;
  for (const [index, weight] of weights.entries()) {
    reached += weight;
    if (at * total < reached) return index;
  }
  return weights.length - 1;
}

/**
 * Indices into a phase's list of `size` demonstrations, for `count` mini-batches from update `firstUpdate` on. The list is used again and
 * again, each time in a new order.
 */
export function drawDemonstrations(input: {
  size: number;
  miniBatchSize: number;
  firstUpdate: number;
  count: number;
  seed: number;
  phase: string;
}): number[][] {
  const { size, miniBatchSize, firstUpdate, count, seed, phase } = input;
  if (size === 0) throw new Error(`there is no demonstration for the phase "${phase}"`);
  return Array.from({ length: count }, (_, batch) =>
    Array.from({ length: miniBatchSize }, (_, place) =>
      taskAt(`sft/${phase}`, (firstUpdate + batch) * miniBatchSize + place, size, seed),
    ),
  );
}
