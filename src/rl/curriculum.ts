// Chooses the tasks of a step. Templates are drawn in proportion to what can be learned from them; each task of a template comes once per
// epoch.
import type { CurriculumState } from '../spec/records/plan.js';
import { hash32, hashText, permuted, uniform } from './random.js';

/** Weight of the newest mean in a template's moving average. */
const momentum = 0.2;
/** Assumed pass rate of a template that was never tried; it gives the highest weight. */
const untried = 0.5;

interface DrawnTask {
  template: string;
  /** Index into the template's tasks, in data order. */
  index: number;
}

/** Pass rates after a step: for each template, p += 0.2 · (mean − p) for the mean of each of its groups, in slot order. */
export function advancePassRates(
  rates: Readonly<Record<string, number>>,
  groups: readonly { template: string; rewards: readonly (number | null)[] }[],
): Record<string, number> {
  const next = { ...rates };
  for (const { template, rewards } of groups) {
    const graded = rewards.filter((reward) => reward !== null);
    if (graded.length === 0) continue;
    const mean = graded.reduce((sum, reward) => sum + reward, 0) / graded.length;
    const rate = next[template] ?? untried;
    next[template] = rate + momentum * (mean - rate);
  }
  return next;
}

/**
 * Draws `count` tasks for a step. A template's weight is p(1−p) + floor. With floor 0, every task is equally likely. A task is drawn twice
 * in a step only if its template has no other left. A pure function; returns the tasks and the cursors after them.
 */
export function drawTasks(input: {
  /** Number of training tasks by template. */
  sizes: ReadonlyMap<string, number>;
  state: CurriculumState;
  count: number;
  floor: number;
  seed: number;
  step: number;
}): { tasks: DrawnTask[]; cursors: Record<string, number> } {
  const { sizes, state, count, floor, seed, step } = input;
  const templates = [...sizes.keys()].filter((template) => (sizes.get(template) ?? 0) > 0).sort();
  if (templates.length === 0) throw new Error('there is no task to train on');
  const weights = templates.map((template) => {
    if (floor === 0) return sizes.get(template) ?? 0;
    const rate = state.pass_rates[template] ?? untried;
    return rate * (1 - rate) + floor;
  });
  const cursors = { ...state.cursors };
  const taken = new Map<string, Set<number>>();
  const tasks = Array.from({ length: count }, (_, slot) => {
    const template = templates[pickWeighted(weights, uniform(seed, step, slot, 0x7a51))] as string;
    const size = sizes.get(template) as number;
    const used = taken.get(template) ?? new Set<number>();
    taken.set(template, used);
    for (;;) {
      const cursor = cursors[template] ?? 0;
      cursors[template] = cursor + 1;
      const index = taskAt(template, cursor, size, seed);
      // A new epoch may begin with a task that this step has already drawn.
      if (used.has(index) && used.size < size) continue;
      used.add(index);
      return { template, index };
    }
  });
  return { tasks, cursors };
}

/** The task of a template at place `cursor`; the order is shuffled again in each epoch. */
function taskAt(template: string, cursor: number, size: number, seed: number): number {
  const epoch = Math.floor(cursor / size);
  return permuted(cursor % size, size, hash32(seed, hashText(template), epoch));
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
