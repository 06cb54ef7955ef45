// Runs the embedded stack for the duration of a command. If a stop signal arrives or the stack keeps failing, all its processes are stopped
// and the command ends.
import { findEngineBinary } from '../../workers/process/built-tool.js';
import { type Stack, startStack } from '../../stack/stack.js';

export interface StackFlags {
  folder: string;
  temporalPort?: number;
  uiPort?: number;
  store?: string;
  nodes?: number;
  places?: number;
  metricsAddress?: string;
  /** Command of an environment server, for a shell. */
  environments?: string;
}

/** Why a session ended before its work was done. */
export class StackStopped extends Error {
  constructor(
    readonly signal: NodeJS.Signals | null,
    message: string,
  ) {
    super(message);
    this.name = 'StackStopped';
  }
}

const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Starts the stack, runs `use`, and always stops the stack. When `signal` aborts, its reason is a `StackStopped`. */
export async function withStack<T>(
  flags: StackFlags,
  log: (message: string) => void,
  use: (stack: Stack, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const ending = new AbortController();
  let stack: Stack | null = null;
  let stopping = false;
  const sayStopping = (): void => {
    if (!stopping) log('stopping the stack');
    stopping = true;
  };
  const handlers = stopSignals.map((name) => {
    const handler = (): void => {
      // A start that is under way takes seconds to stop.
      if (stack === null) sayStopping();
      ending.abort(new StackStopped(name, `stopped by ${name}`));
    };
    process.on(name, handler);
    return [name, handler] as const;
  });
  try {
    stack = await startStack({
      folder: flags.folder,
      engine: findEngineBinary(),
      log,
      signal: ending.signal,
      gaveUp: (error) => ending.abort(new StackStopped(null, error.message)),
      ...(flags.store ? { store: flags.store } : {}),
      ...(flags.metricsAddress ? { metricsAddress: flags.metricsAddress } : {}),
      ...(flags.environments
        ? { scripts: { environments: ['/bin/sh', '-c', `exec ${flags.environments}`] } }
        : {}),
      nodes: flags.nodes ?? 1,
      places: flags.places ?? 1,
      temporalPort: flags.temporalPort ?? null,
      uiPort: flags.uiPort ?? null,
    });
    ending.signal.throwIfAborted();
    return await use(stack, ending.signal);
  } finally {
    if (stack) {
      sayStopping();
      await stack.stop();
    }
    for (const [name, handler] of handlers) process.off(name, handler);
  }
}

/** A promise that rejects with the signal's reason when the signal aborts. */
export function whenEnding(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason as Error);
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
}
