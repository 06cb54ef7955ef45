// Sets up a worker's log (JSON lines on standard error) and the address of the SDK's metrics: the SDK takes both in one call.
import { DefaultLogger, makeTelemetryFilterString, Runtime, type RuntimeOptions } from '@temporalio/worker';
import { print } from './worker-exit.js';

/** Histogram buckets in milliseconds. The SDK's own range from 100 ms to a minute; our waits are shorter, and rollouts take hours. */
const waits = [5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 10_000, 100_000];
const histogramBucketOverrides = {
  activity_execution_latency: [
    50, 100, 500, 1_000, 5_000, 10_000, 60_000, 300_000, 1_800_000, 7_200_000, 36_000_000,
  ],
  activity_schedule_to_start_latency: waits,
  workflow_task_schedule_to_start_latency: waits,
};

/** `waits`: the process waits for something external, which the stack's supervisor reports at once. */
export type WorkerLog = (message: string, more?: { waits: true }) => void;

/**
 * Call once, before any connection. `metricsAddress`: `host:port` for Prometheus. Its `/metrics` has the SDK's names without unit or
 * `_total`, and durations in milliseconds. If the address cannot be bound, the process only logs a line.
 */
export function installRuntime(component: string, metricsAddress: string | null): WorkerLog {
  const write = (level: string, message: string, meta?: Record<string, unknown>): void => {
    const { sdkComponent: _component, taskQueue: _queue, ...rest } = meta ?? {};
    print({ level, component, message, ...readable(rest) });
  };
  const logger = new DefaultLogger('WARN', ({ level, message, meta }) =>
    write(level.toLowerCase(), message, meta),
  );
  // Without this setting the SDK's native part writes to standard error directly, including messages from the server.
  const logging = {
    forward: {},
    filter: makeTelemetryFilterString({ core: 'WARN', other: 'ERROR' }),
  };
  const install = (telemetry: RuntimeOptions['telemetryOptions']): void => {
    Runtime.install({ logger, telemetryOptions: { logging, ...telemetry } });
  };
  const log: WorkerLog = (message, more) => write('info', message, more);
  if (metricsAddress === null) {
    install({});
    return log;
  }
  try {
    install({ metrics: { prometheus: { bindAddress: metricsAddress, histogramBucketOverrides } } });
    log(`metrics of Temporal's SDK: http://${metricsAddress}/metrics`);
  } catch (error) {
    install({});
    write('warn', withoutMetrics(metricsAddress, error as Error));
  }
  return log;
}

function withoutMetrics(address: string, { message }: Error): string {
  const inUse = /address already in use/i.test(message);
  const reason = inUse ? 'another process listens there' : message;
  return (
    `no metrics are served at ${address}: ${reason}. This worker runs without metrics; to serve them, give it another ` +
    '--metrics-address or LONGHAUL_METRICS_ADDRESS and start it again'
  );
}

/** Replaces errors by their messages, as JSON would write `{}`. */
function readable(meta: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(meta).map(([key, value]) => [
    key,
    value instanceof Error ? value.message : value,
  ]);
  return Object.fromEntries(entries) as Record<string, unknown>;
}
