// A limited number of places on one server, first come, first served.
import { awakeNow } from '../base/awake-clock.js';

export interface Semaphore {
  /** Takes one place, or all. Resolves with a function that releases them once. Rejects with the signal's reason when it aborts. */
  acquire(signal: AbortSignal, wanted?: 'one' | 'all'): Promise<() => void>;
  /** The present number of places, free or taken, and the number of callers that wait for one. */
  readonly crowd: { places: number; waiting: number };
  /** Lowers the number of places permanently, but not below 1. Taken places stay taken. */
  limitTo(places: number): void;
  /** Lowers it because the server says that it has no more places now. The server may be restarted with more, so the number doubles every minute. */
  shrinkTo(places: number): void;
}

interface Waiter {
  wanted: 'one' | 'all';
  granted: (count: number) => void;
}

const raiseAfterMs = 60_000;

export function createSemaphore(places: number, now: () => number = awakeNow): Semaphore {
  let limit = places;
  let most = places;
  /** When the server last said how many places it has. */
  let learnedAt = 0;
  /** Free places; negative while more places are taken than there are. */
  let free = places;
  let queue: Waiter[] = [];
  let isAlone = false;

  /** A caller that wants all places blocks later callers; otherwise it might wait for ever. */
  function grant(): void {
    raise();
    for (let next = queue[0]; next; next = queue[0]) {
      const count = next.wanted === 'all' ? limit : 1;
      if (count > free) return;
      queue.shift();
      free -= count;
      isAlone = next.wanted === 'all';
      next.granted(count);
    }
  }

  function raise(): void {
    // No new place while an episode must play alone.
    if (isAlone || limit >= most || now() - learnedAt < raiseAfterMs) return;
    learnedAt = now();
    setLimit(Math.min(most, 2 * limit));
  }

  function setLimit(places: number): void {
    free += places - limit;
    limit = places;
  }

  return {
    get crowd() {
      return { places: limit, waiting: queue.length };
    },
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
        if (wanted === 'all') isAlone = false;
        grant();
      };
    },
    limitTo(places) {
      most = Math.max(1, Math.min(most, places));
      setLimit(Math.min(limit, most));
    },
    shrinkTo(places) {
      learnedAt = now();
      setLimit(Math.max(1, Math.min(limit, places)));
    },
  };
}

/** The wait is reported if so many episodes wait for each place. */
const crowdFactor = 8;

/** Says that episodes are slow because few of them can play at the same time; null if enough can. `hasOneWorld`: the server cannot have more. */
export function crowdText({ places, waiting }: Semaphore['crowd'], hasOneWorld: boolean): string | null {
  if (waiting === 0 || (places > 1 && waiting < crowdFactor * places)) return null;
  const more = hasOneWorld
    ? 'a server without /ws has one world'
    : 'raise max_concurrent_envs of the server, or max_sessions if the spec sets it';
  return `it plays ${places} ${places === 1 ? 'episode' : 'episodes'} at a time, so the others wait: ${more}`;
}
