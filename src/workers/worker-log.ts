// How a worker process logs and ends: JSON lines on standard error, one readable line for what stops it.
import { DefaultLogger, makeTelemetryFilterString, Runtime } from '@temporalio/worker';
import { withoutKnownSecrets } from '../activities/known-secrets.js';
import { mendsItself } from '../activities/repeated-failures.js';
import { isNoSpace } from '../store/store-errors.js';
import { waitsForOthers } from './supervised-process.js';

export function installLogger(component: string): (message: string) => void {
  const write = (level: string, message: string, meta?: Record<string, unknown>): void => {
    const { sdkComponent: _component, taskQueue: _queue, ...rest } = meta ?? {};
    print({ level, component, message, ...readable(rest) });
  };
  Runtime.install({
    logger: new DefaultLogger('WARN', ({ level, message, meta }) =>
      write(level.toLowerCase(), message, meta),
    ),
    // Without it the native part writes to standard error by itself, whatever a server has said to it.
    telemetryOptions: {
      logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'WARN', other: 'ERROR' }) },
    },
  });
  return (message) => write('info', message);
}

/**
 * Runs a worker's `serve`; exits with one line when it cannot start or go on: with `waitsForOthers` for what ends by itself or
 * with more room, else with 1.
 */
export async function exitWith(component: string, serve: () => Promise<void>): Promise<void> {
  // Node's default for these is the same exit, but without a line that a person can read.
  process.on('uncaughtException', (error) => fail(component, error));
  process.on('unhandledRejection', (error) => fail(component, error));
  try {
    await serve();
    process.exit(0);
  } catch (error) {
    fail(component, error);
  }
}

function fail(component: string, error: unknown): never {
  const message = error instanceof Error ? error.message : String(error);
  const stack = error instanceof Error ? error.stack : undefined;
  try {
    print({ level: 'fatal', component, message, stack });
  } finally {
    // The disk that has no room for the line is the reason, too.
    const passes = error instanceof Error && (mendsItself(error) || isNoSpace(error));
    process.exit(passes ? waitsForOthers : 1);
  }
}

function print(line: Record<string, unknown>): void {
  const text = JSON.stringify({ at: new Date().toISOString(), ...line });
  process.stderr.write(`${withoutKnownSecrets(text)}\n`);
}

/** Errors become their messages; JSON would write them as `{}`. */
function readable(meta: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(meta).map(([key, value]) => [
    key,
    value instanceof Error ? value.message : value,
  ]);
  return Object.fromEntries(entries) as Record<string, unknown>;
}
