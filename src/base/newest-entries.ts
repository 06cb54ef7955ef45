// A process's memory by name, for as long as it lives: it keeps the newest names, and so never too many.

/** More names than are in use at once; older ones are forgotten. */
const maxRemembered = 1_000;

export class NewestEntries<V> {
  private readonly entries = new Map<string, V>();

  get(name: string): V | undefined {
    return this.entries.get(name);
  }

  /** The name becomes the newest one; above the limit, the oldest is removed. */
  set(name: string, value: V): void {
    this.entries.delete(name);
    this.entries.set(name, value);
    const oldest = this.entries.keys().next().value;
    if (this.entries.size > maxRemembered && oldest !== undefined) this.entries.delete(oldest);
  }

  /** Returns the value, and removes it. */
  take(name: string): V | undefined {
    const value = this.entries.get(name);
    this.entries.delete(name);
    return value;
  }

  /** Null if nothing was noted. */
  newest(): { name: string; value: V } | null {
    const last = [...this.entries].at(-1);
    return last ? { name: last[0], value: last[1] } : null;
  }
}
