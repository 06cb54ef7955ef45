// Which tasks became better or worse, beyond chance. Each task is tested by Fisher's exact test; as many tasks are claimed as keep the
// expected share of false claims at one in twenty (Benjamini and Hochberg 1995). Some tasks could not be claimed with any outcome, given
// how many samples of both states together passed. They do not count as tests. This causes no bias, because the exact test takes these sums
// as given.
import type { Counted } from '../spec/pass-rate.js';

export interface TaskChange {
  task_key: string;
  env_key: string;
  before: Counted;
  after: Counted;
  /** Chance of a difference at least this large if both states solve the task equally often. */
  chance: number;
  verdict: 'better' | 'worse' | 'within noise';
}

export interface TaskPair {
  task_key: string;
  env_key: string;
  before: Counted;
  after: Counted;
}

const falseClaims = 0.05;

/** Tasks with different pass rates: first the claimed changes, then by size. Pairs without graded samples on both sides are skipped. */
export function taskChanges(pairs: readonly TaskPair[]): TaskChange[] {
  const tested: (TaskPair & { chance: number })[] = [];
  const chances: number[] = [];
  for (const pair of pairs) {
    if (pair.before.graded === 0 || pair.after.graded === 0) continue;
    const chance = fisherExact(pair.before, pair.after);
    tested.push({ ...pair, chance });
    if (canBeClaimed(pair)) chances.push(chance);
  }
  const claimed = claimedBelow(chances);
  return tested
    .filter((pair) => changeOf(pair) !== 0)
    .map((pair): TaskChange => {
      const verdict = pair.chance > claimed ? 'within noise' : changeOf(pair) > 0 ? 'better' : 'worse';
      return { ...pair, verdict };
    })
    .sort(
      (a, b) =>
        Number(a.verdict === 'within noise') - Number(b.verdict === 'within noise') ||
        Math.abs(changeOf(b)) - Math.abs(changeOf(a)) ||
        a.chance - b.chance ||
        (a.task_key < b.task_key ? -1 : 1),
    );
}

function changeOf({ before, after }: TaskPair): number {
  return after.passed / after.graded - before.passed / before.graded;
}

/** The largest p-value that counts as a claimed change; −1 if no change is claimed. */
function claimedBelow(chances: readonly number[]): number {
  const sorted = [...chances].sort((a, b) => a - b);
  const last = sorted.findLastIndex((chance, index) => chance <= (falseClaims * (index + 1)) / sorted.length);
  return last < 0 ? -1 : (sorted[last] as number);
}

/** True if the most uneven split of the passed samples between the two states would be claimed. */
function canBeClaimed({ before, after }: TaskPair): boolean {
  const passed = before.passed + after.passed;
  const uneven = [Math.max(0, passed - after.graded), Math.min(passed, before.graded)].map((first) =>
    fisherExact({ ...before, passed: first }, { ...after, passed: passed - first }),
  );
  return Math.min(...uneven) <= falseClaims;
}

/** Two-sided p-value: the sum over all tables with these margins that are at most as likely as this one. */
export function fisherExact(a: Counted, b: Counted): number {
  const passed = a.passed + b.passed;
  const lowest = Math.max(0, passed - b.graded);
  const highest = Math.min(passed, a.graded);
  const logChance = (first: number): number =>
    logChoose(a.graded, first) + logChoose(b.graded, passed - first) - logChoose(a.graded + b.graded, passed);
  const seen = logChance(a.passed);
  let sum = 0;
  for (let first = lowest; first <= highest; first++) {
    const chance = logChance(first);
    // The tolerance includes equally likely tables, which may differ in the last digits.
    if (chance <= seen + 1e-9) sum += Math.exp(chance);
  }
  return Math.min(1, sum);
}

function logChoose(n: number, k: number): number {
  return logFactorial(n) - logFactorial(k) - logFactorial(n - k);
}

const logFactorials = [0];
function logFactorial(n: number): number {
  for (let i = logFactorials.length; i <= n; i++)
    logFactorials.push((logFactorials[i - 1] as number) + Math.log(i));
  return logFactorials[n] as number;
}
