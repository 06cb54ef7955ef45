// How a worker process logs: JSON lines on standard error.
import { DefaultLogger, makeTelemetryFilterString, Runtime } from '@temporalio/worker';
import { print } from './worker-exit.js';

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

/** Errors become their messages; JSON would write them as `{}`. */
function readable(meta: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(meta).map(([key, value]) => [
    key,
    value instanceof Error ? value.message : value,
  ]);
  return Object.fromEntries(entries) as Record<string, unknown>;
}
