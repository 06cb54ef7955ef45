// Places of one server, given out first come, first served.
export interface Semaphore {
  /** Resolves with a function that gives the place back (once). Rejects with the signal's reason when aborted. */
  acquire(signal: AbortSignal): Promise<() => void>;
}

export function createSemaphore(places: number): Semaphore {
  let free = places;
  const queue = new Set<() => void>();

  function take(): () => void {
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const [next] = queue;
      if (next) {
        queue.delete(next);
        next();
      } else free++;
    };
  }

  return {
    async acquire(signal) {
      signal.throwIfAborted();
      if (free > 0) {
        free--;
        return take();
      }
      await new Promise<void>((resolve, reject) => {
        const granted = (): void => {
          signal.removeEventListener('abort', aborted);
          resolve();
        };
        const aborted = (): void => {
          queue.delete(granted);
          reject(signal.reason as Error);
        };
        signal.addEventListener('abort', aborted, { once: true });
        queue.add(granted);
      });
      return take();
    },
  };
}
