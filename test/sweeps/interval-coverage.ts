// Simulated comparisons, in which the true difference is known: the share of 95 % intervals that contain it.
import { uniform } from '../../src/rl/random.js';
import { pairedInterval, unseenChange } from '../../src/sweeps/bootstrap.js';

interface Regime {
  tasks: number;
  samples: number;
  /** Mean pass rate of the baseline. */
  rate: number;
  /** Standard deviation of the tasks' log-odds; 0 if all tasks are equally hard. */
  spread: number;
  /** `shift`: by how much the other state is better, in log-odds; `unevenness`: how much that differs between tasks. */
  shift: number;
  unevenness: number;
}

/** Standard normal, from two uniform numbers. */
function normal(...key: (number | string)[]): number {
  const [a, b] = [uniform(...key, 'a'), uniform(...key, 'b')];
  return Math.sqrt(-2 * Math.log(1 - a)) * Math.cos(2 * Math.PI * b);
}

const logistic = (odds: number): number => 1 / (1 + Math.exp(-odds));

/** Pass rates of both states on the `index`-th task of an endless supply. */
function ratesOf({ rate, spread, shift, unevenness }: Regime, key: string, index: number): [number, number] {
  const odds = Math.log(rate / (1 - rate)) + (spread === 0 ? 0 : spread * normal(key, 'task', index));
  const change = shift + (unevenness === 0 ? 0 : unevenness * normal(key, 'change', index));
  return [logistic(odds), logistic(odds + change)];
}

const supply = 20_000;
function trueDifference(regime: Regime): number {
  let sum = 0;
  for (let index = 0; index < supply; index++) {
    const [before, after] = ratesOf(regime, 'supply', index);
    sum += after - before;
  }
  return sum / supply;
}

function covers(regime: Regime, truth: number, comparison: string): boolean {
  const { tasks, samples } = regime;
  const differences = Array.from({ length: tasks }, (_, index) => {
    const rates = ratesOf(regime, comparison, index);
    const [before = 0, after = 0] = rates.map((rate, side) => {
      let passed = 0;
      for (let sample = 0; sample < samples; sample++)
        passed += Number(uniform(comparison, side, index, sample) < rate);
      return passed / samples;
    });
    return after - before;
  });
  const { low, high } = pairedInterval(differences, unseenChange(samples), [comparison]);
  return low <= truth && truth <= high;
}

const sizes = [20, 35, 50, 100, 200];
const counts = [1, 2, 4, 8];
const kinds: Omit<Regime, 'tasks' | 'samples'>[] = [
  { rate: 0.05, spread: 0, shift: 0, unevenness: 0 },
  { rate: 0.05, spread: 1.5, shift: 0.7, unevenness: 0.5 },
  { rate: 0.1, spread: 2, shift: 0.5, unevenness: 1 },
  { rate: 0.3, spread: 1.5, shift: 0.8, unevenness: 0.5 },
  { rate: 0.5, spread: 0, shift: 0.5, unevenness: 0 },
  { rate: 0.5, spread: 3, shift: 0.5, unevenness: 1 },
  { rate: 0.7, spread: 2, shift: -0.5, unevenness: 1 },
  { rate: 0.9, spread: 2, shift: 0.5, unevenness: 0.5 },
  { rate: 0.95, spread: 1.5, shift: -0.5, unevenness: 0.5 },
  { rate: 0.95, spread: 0, shift: 0, unevenness: 0 },
];

export interface Coverage {
  covered: number;
  of: number;
}

/** By group of comparisons, including `all`: each size is combined in turn with each number of samples and each kind. */
export function intervalCoverage(comparisons: number): Map<string, Coverage> {
  const truths = kinds.map((kind) => trueDifference({ ...kind, tasks: 0, samples: 0 }));
  const tally = new Map<string, Coverage>();
  const count = (group: string, covered: boolean): void => {
    const so = tally.get(group) ?? { covered: 0, of: 0 };
    tally.set(group, { covered: so.covered + Number(covered), of: so.of + 1 });
  };
  for (let comparison = 0; comparison < comparisons; comparison++) {
    const kind = comparison % kinds.length;
    const samples = counts[Math.floor(comparison / kinds.length) % counts.length] as number;
    const tasks = sizes[Math.floor(comparison / kinds.length / counts.length) % sizes.length] as number;
    const regime = { ...(kinds[kind] as (typeof kinds)[number]), tasks, samples };
    const covered = covers(regime, truths[kind] as number, `comparison ${comparison}`);
    count('all', covered);
    count(`${tasks} tasks`, covered);
    count(`${samples} samples`, covered);
    count(`pass rate ${regime.rate}`, covered);
  }
  return tally;
}
