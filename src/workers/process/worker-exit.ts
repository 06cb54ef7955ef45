// How a worker process ends: one readable line for what stops it, as JSON on standard error. Imports nothing slow: a process must be able
// to report a failure before everything else is loaded.
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import { isNoSpace } from '../../store/objects/store-errors.js';

/** Exit code of a process that could not start for lack of something external: room, a store, a server (EX_TEMPFAIL). */
export const waitsForOthers = 75;

/**
 * Runs a worker's `serve`; exits with one line when it cannot start or go on: with `waitsForOthers` for a problem that passes or needs more
 * room, else with 1.
 */
export async function exitWith(component: string, serve: () => Promise<void>): Promise<void> {
  // Node's default for these is the same exit, but without a line that a person can read.
  process.on('uncaughtException', (error) => void fail(component, error));
  process.on('unhandledRejection', (error) => void fail(component, error));
  try {
    await serve();
    process.exit(0);
  } catch (error) {
    await fail(component, error);
  }
}

async function fail(component: string, error: unknown): Promise<void> {
  const message = error instanceof Error ? error.message : String(error);
  const stack = error instanceof Error ? error.stack : undefined;
  try {
    print({ level: 'fatal', component, message, stack });
  } finally {
    // Knows Temporal's errors, and so loads its client if it is not loaded yet.
    const { mendsItself } = await import('../../activities/attempt/repeated-failures.js');
    // A disk without room for the line is the reason, too.
    const passes = error instanceof Error && (mendsItself(error) || isNoSpace(error));
    process.exit(passes ? waitsForOthers : 1);
  }
}

/** A line of a worker's log. */
export function print(line: Record<string, unknown>): void {
  const text = JSON.stringify({ at: new Date().toISOString(), ...line });
  process.stderr.write(`${withoutKnownSecrets(text)}\n`);
}
