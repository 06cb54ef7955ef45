// How many requests to one server may be open at once: halved when the server says 429, and one more after each request that it takes.

export class RequestWindow {
  private size: number;
  private open = 0;
  private readonly queue: (() => void)[] = [];

  constructor(private readonly largest = 64) {
    this.size = largest;
  }

  /** Runs `use` once there is room. Requests are let in by order of arrival. */
  async within<T>(use: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.enter(signal);
    try {
      return await use();
    } finally {
      this.open -= 1;
      this.letIn();
    }
  }

  get limit(): number {
    return this.size;
  }

  taken(): void {
    this.size = Math.min(this.largest, this.size + 1);
    this.letIn();
  }

  refused(): void {
    this.size = Math.max(1, Math.floor(this.size / 2));
  }

  private async enter(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.open < this.size && this.queue.length === 0) {
      this.open += 1;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const enter = (): void => {
        signal?.removeEventListener('abort', leave);
        this.open += 1;
        resolve();
      };
      const leave = (): void => {
        this.queue.splice(this.queue.indexOf(enter), 1);
        reject(signal?.reason as Error);
      };
      signal?.addEventListener('abort', leave, { once: true });
      this.queue.push(enter);
    });
  }

  private letIn(): void {
    while (this.open < this.size) {
      const enter = this.queue.shift();
      if (!enter) return;
      enter();
    }
  }
}
