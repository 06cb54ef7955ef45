// How a worker process ends: it writes one readable line, as JSON on standard error, that says why. This file imports nothing slow, so that
// a process can report a failure before its other modules are loaded.
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import { isNoSpace } from '../../store/record-errors.js';

/** Exit code of a process that lacks something external: disk space, a store, a server (EX_TEMPFAIL). */
export const waitsForOthers = 75;

/** Runs a worker's `serve`. If it fails, writes one line and exits with `waitsForOthers` (temporary problem, full disk) or with 1. */
export async function exitWith(component: string, serve: () => Promise<void>): Promise<void> {
  // By default Node also exits here, but without a readable line.
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
    // Import late: this module loads Temporal's client, whose errors it knows.
    const { mendsItself } = await import('../../activities/attempt/repeated-failures.js');
    // A full disk and a GPU that is missing or out of service are temporary problems, too.
    const passes =
      error instanceof Error &&
      (mendsItself(error) || isNoSpace(error) || ('code' in error && error.code === 'DeviceUnavailable'));
    process.exit(passes ? waitsForOthers : 1);
  }
}

/** Writes a line of a worker's log. */
export function print(line: Record<string, unknown>): void {
  const text = JSON.stringify({ at: new Date().toISOString(), ...line });
  process.stderr.write(`${withoutKnownSecrets(text)}\n`);
}
