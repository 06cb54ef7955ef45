// A cache for values that are costly to make and never change. When it is full, the value used longest ago is removed.

export class RecentlyUsed<T> {
  private readonly held = new Map<string, Promise<T>>();

  constructor(private readonly capacity: number) {}

  /** Returns the cached value, or calls `make`. A failed value is not kept. */
  get(key: string, make: () => Promise<T>): Promise<T> {
    const held = this.held.get(key);
    // The most recently used value is at the end.
    this.held.delete(key);
    const value = held ?? make();
    this.held.set(key, value);
    if (!held) value.catch(() => this.held.get(key) === value && this.held.delete(key));
    const oldest = this.held.keys().next().value;
    if (this.held.size > this.capacity && oldest !== undefined) this.held.delete(oldest);
    return value;
  }
}
