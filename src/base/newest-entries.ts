// A process's memory by name. It keeps only the newest names, so it cannot grow without limit.

/** More names than are ever in use at once. */
const maxRemembered = 1_000;

export class NewestEntries<V> {
  private readonly entries = new Map<string, V>();

  get(name: string): V | undefined {
    return this.entries.get(name);
  }

  /** Stores the value and makes the name the newest; above the limit, the oldest name is removed. */
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

  /** The entry that was set last; null if there is none. */
  newest(): { name: string; value: V } | null {
    const last = [...this.entries].at(-1);
    return last ? { name: last[0], value: last[1] } : null;
  }
}
