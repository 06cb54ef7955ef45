// A limited number of places on one server, first come, first served.
export interface Semaphore {
  /** Takes one place, or all. Resolves with a function that releases them once. Rejects with the signal's reason when it aborts. */
  acquire(signal: AbortSignal, wanted?: 'one' | 'all'): Promise<() => void>;
}

interface Waiter {
  count: number;
  granted: () => void;
}

export function createSemaphore(places: number): Semaphore {
  let free = places;
  let queue: Waiter[] = [];

  /** A caller that wants all places blocks later callers; otherwise it might wait for ever. */
  function grant(): void {
    for (let next = queue[0]; next && next.count <= free; next = queue[0]) {
      queue.shift();
      free -= next.count;
      next.granted();
    }
  }

  return {
    async acquire(signal, wanted = 'one') {
      signal.throwIfAborted();
      const count = wanted === 'all' ? places : 1;
      await new Promise<void>((resolve, reject) => {
        const aborted = (): void => {
          queue = queue.filter((other) => other !== waiter);
          reject(signal.reason as Error);
          grant();
        };
        const granted = (): void => {
          signal.removeEventListener('abort', aborted);
          resolve();
        };
        const waiter: Waiter = { count, granted };
        signal.addEventListener('abort', aborted, { once: true });
        queue.push(waiter);
        grant();
      });
      let held = true;
      return () => {
        if (!held) return;
        held = false;
        free += count;
        grant();
      };
    },
  };
}
