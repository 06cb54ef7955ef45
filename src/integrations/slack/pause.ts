import { setTimeout as sleep } from 'node:timers/promises';

/** Throws the reason of `stop` as soon as it is aborted. */
export async function pause(ms: number, stop: AbortSignal): Promise<void> {
  stop.throwIfAborted();
  if (ms > 0) await sleep(ms, undefined, { signal: stop }).catch(() => undefined);
  stop.throwIfAborted();
}
