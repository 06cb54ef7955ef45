// Waits for other processes, always for a condition and with a deadline.
import { setTimeout as delay } from 'node:timers/promises';

/** Long, because the machine may be busy with other tests. */
const defaultDeadlineMs = 240_000;

/** Throw this to end a wait at once, because the condition can no longer become true. */
export class Stuck extends Error {}

/** The first truthy answer of `condition`. An error counts as "not yet", and is reported at the deadline. */
export async function until<T>(
  condition: () => T | Promise<T>,
  what: string,
  deadlineMs = defaultDeadlineMs,
): Promise<NonNullable<T>> {
  const deadline = Date.now() + deadlineMs;
  let last: unknown;
  for (;;) {
    try {
      const answer = await condition();
      if (answer) return answer;
      last = answer;
    } catch (error) {
      if (error instanceof Stuck) throw error;
      last = error;
    }
    if (Date.now() > deadline)
      throw new Error(`waited ${deadlineMs / 1000} s for ${what}; last: ${String(last)}`);
    await delay(20);
  }
}
