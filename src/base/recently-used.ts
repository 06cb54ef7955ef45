// A cache of what is costly to make and never changes: each value is made once, and the one used longest ago goes first.

export class RecentlyUsed<T> {
  private readonly held = new Map<string, Promise<T>>();

  constructor(private readonly capacity: number) {}

  /** `make` is called if the value is not held; a failed one is not kept. */
  get(key: string, make: () => Promise<T>): Promise<T> {
    const held = this.held.get(key);
    // The last used value is at the end.
    this.held.delete(key);
    const value = held ?? make();
    this.held.set(key, value);
    if (!held) value.catch(() => this.held.get(key) === value && this.held.delete(key));
    const oldest = this.held.keys().next().value;
    if (this.held.size > this.capacity && oldest !== undefined) this.held.delete(oldest);
    return value;
  }
}
