// The failed pairs of a sweep, and so what is tried next and when the rest is left: one bad state or suite must not end a sweep.
import type { FailedPair, PairToDo } from '../../activities/sweep-contracts.js';

/** When this many states fail in a row with no success in between, the cause is not a state. */
const maxStatesInARow = 3;
const maxNamed = 50;

export class SweepFailures {
  /** Since the last success. */
  private inARow: PairToDo[] = [];

  /** `named`: failed pairs that are shown and not tried again; it grows with each failure. */
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

  /** Other pairs of a failed state wait until nothing else is left: each may cost as many tries as the first. */
  isPutAside(pair: PairToDo): boolean {
    return this.named.some((failed) => stateOf(failed) === stateOf(pair));
  }

  /** Takes the next pair out of the window; undefined if that is empty. */
  take<Pair extends PairToDo>(window: Pair[]): Pair | undefined {
    const suspect = this.states > 1 ? this.onlySuite : null;
    // Several states have failed on one suite, and on no other: a pair of another suite shows whether the suite is the cause.
    let index = suspect === null ? -1 : window.findIndex(({ suite }) => suite !== suspect);
    if (index < 0) index = window.findIndex((pair) => !this.isPutAside(pair));
    return window.splice(Math.max(index, 0), 1)[0];
  }

  /** The cause is neither a state's nor a suite's, or nothing in `window` could show that. */
  areEverywhere(window: readonly PairToDo[]): boolean {
    const suite = this.onlySuite;
    const isElsewhere = suite === null || window.every((pair) => pair.suite === suite);
    return this.states >= maxStatesInARow && isElsewhere;
  }

  private get states(): number {
    return new Set(this.inARow.map(stateOf)).size;
  }

  /** Null: none, or several. */
  private get onlySuite(): string | null {
    const [suite, ...others] = new Set(this.inARow.map((pair) => pair.suite));
    return others.length === 0 ? (suite ?? null) : null;
  }
}

function stateOf({ run, step }: PairToDo): string {
  return `${run}@${step}`;
}
