// Readers–writer lock on the engine's state (R15). Callers that use the same state share the lock; a caller that changes the state holds it
// alone. Fair to writers: a reader waits for a writer that came before it. Not reentrant.

interface Waiter {
  exclusive: boolean;
  enter: () => void;
}

export class StateLock {
  private readers = 0;
  private writing = false;
  private queue: Waiter[] = [];

  /** Runs `use` while other readers may hold the lock too. */
  async shared<T>(use: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.enter(false, signal);
    try {
      return await use();
    } finally {
      this.readers -= 1;
      this.admit();
    }
  }

  /** Runs `change` while nobody else holds the lock. */
  async exclusive<T>(change: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.enter(true, signal);
    try {
      return await change();
    } finally {
      this.writing = false;
      this.admit();
    }
  }

  /** Takes the lock. Rejects with the signal's reason if the signal aborts first. */
  private enter(exclusive: boolean, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const leave = () => {
        this.queue = this.queue.filter((other) => other !== waiter);
        reject(signal?.reason);
        this.admit();
      };
      const waiter: Waiter = {
        exclusive,
        enter: () => {
          signal?.removeEventListener('abort', leave);
          resolve();
        },
      };
      signal?.addEventListener('abort', leave, { once: true });
      this.queue.push(waiter);
      this.admit();
    });
  }

  private admit(): void {
    for (;;) {
      const next = this.queue[0];
      if (next === undefined || this.writing || (next.exclusive && this.readers > 0)) return;
      this.queue.shift();
      if (next.exclusive) this.writing = true;
      else this.readers += 1;
      next.enter();
    }
  }
}
