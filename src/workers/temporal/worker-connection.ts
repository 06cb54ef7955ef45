// The connection of a worker. It has its own file because it loads the SDK's native part, which takes 100 MB and a second.
import { NativeConnection } from '@temporalio/worker';
import type { TemporalConfig } from '../process/config.js';
import { untilDeadline } from './temporal-connection.js';

/** Throws as `connectClient` does. */
export function connectWorker(temporal: TemporalConfig, deadlineMs = 60_000): Promise<NativeConnection> {
  return untilDeadline(temporal, deadlineMs, () => NativeConnection.connect(temporal.options));
}
