// A limited number of places on one server, first come, first served.
export interface Semaphore {
  /** Takes one place, or all. Resolves with a function that releases them once. Rejects with the signal's reason when it aborts. */
  acquire(signal: AbortSignal, wanted?: 'one' | 'all'): Promise<() => void>;
  /** Lowers the number of places, at least to 1: the server has told how many it has. Places that are taken stay taken. */
  shrinkTo(places: number): void;
}

interface Waiter {
  wanted: 'one' | 'all';
  granted: (count: number) => void;
}

export function createSemaphore(places: number): Semaphore {
  let limit = places;
  /** Negative while more places are taken than there are now. */
  let free = places;
  let queue: Waiter[] = [];

  /** A caller that wants all places blocks later callers; otherwise it might wait for ever. */
  function grant(): void {
    for (let next = queue[0]; next; next = queue[0]) {
      const count = next.wanted === 'all' ? limit : 1;
      if (count > free) return;
      queue.shift();
      free -= count;
      next.granted(count);
    }
  }

  return {
    async acquire(signal, wanted = 'one') {
      signal.throwIfAborted();
      const count = await new Promise<number>((resolve, reject) => {
        const aborted = (): void => {
          queue = queue.filter((other) => other !== waiter);
          reject(signal.reason as Error);
          grant();
        };
        const granted = (count: number): void => {
          signal.removeEventListener('abort', aborted);
          resolve(count);
        };
        const waiter: Waiter = { wanted, granted };
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
    shrinkTo(places) {
      const fewer = Math.max(1, Math.min(limit, places));
      free -= limit - fewer;
      limit = fewer;
    },
  };
}
