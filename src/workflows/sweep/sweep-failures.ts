// Counts the failed pairs of a sweep, decides which pair comes next, and when to give up: one bad state must not end a sweep.
import type { FailedPair, PairToDo } from '../../activities/sweep-contracts.js';

/** If this many different states fail in a row, with no success in between, a bad state is not the cause. */
const maxStatesInARow = 3;
const maxNamed = 50;

export class SweepFailures {
  /** Pairs that have failed since the last success. */
  private inARow: PairToDo[] = [];

  /** `named`: the failed pairs, which are shown and not tried again; each failure adds one. */
  constructor(readonly named: FailedPair[]) {}

  succeeded(): void {
    this.inARow = [];
  }

  add(pair: PairToDo, reason: string): void {
    this.inARow.push(pair);
    if (this.named.length < maxNamed) this.named.push({ ...pair, reason });
  }

  has({ n }: PairToDo): boolean {
    return this.named.some((failed) => failed.n === n);
  }

  /** Other pairs of a failed state wait until no other pair is left, because each may fail as slowly as the first. */
  isPutAside(pair: PairToDo): boolean {
    return this.named.some((failed) => stateOf(failed) === stateOf(pair));
  }

  /** Takes the next pair out of the window; undefined if the window is empty. */
  take<Pair extends PairToDo>(window: Pair[]): Pair | undefined {
    const suspect = this.states > 1 ? this.onlySuite : null;
    // If several states have failed on one suite only, a pair of another suite shows whether that suite is the cause.
    let index = suspect === null ? -1 : window.findIndex(({ suite }) => suite !== suspect);
    if (index < 0) index = window.findIndex((pair) => !this.isPutAside(pair));
    return window.splice(Math.max(index, 0), 1)[0];
  }

  /** True if neither a state nor a suite is to blame: several states failed, on several suites or on the only one in `window`. */
  areEverywhere(window: readonly PairToDo[]): boolean {
    const suite = this.onlySuite;
    const isElsewhere = suite === null || window.every((pair) => pair.suite === suite);
    return this.states >= maxStatesInARow && isElsewhere;
  }

  private get states(): number {
    return new Set(this.inARow.map(stateOf)).size;
  }

  /** The suite of all failed pairs; null if no pair has failed, or if pairs of several suites have. */
  private get onlySuite(): string | null {
    const [suite, ...others] = new Set(this.inARow.map((pair) => pair.suite));
    return others.length === 0 ? (suite ?? null) : null;
  }
}

function stateOf({ run, step }: PairToDo): string {
  return `${run}@${step}`;
}
