// Runs computations of seconds in slices, so that other users of the event loop are served in between.
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Yields where it may be interrupted; its result does not depend on where. */
export type Sliced<T> = Generator<void, T, void>;

/** Length of a slice; the work between two yields adds less than as much again. */
const sliceMs = 20;

export function atOnce<T>(work: Sliced<T>): T {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** Between two slices the event loop takes a turn, and `between` is called, which may throw to end the work. */
export async function inSlices<T>(work: Sliced<T>, between: () => void = () => undefined): Promise<T> {
  for (;;) {
    const until = performance.now() + sliceMs;
    do {
      const step = work.next();
      if (step.done) return step.value;
    } while (performance.now() < until);
    await nextTurn();
    between();
  }
}
