// What a process remembers by name, for as long as it lives: the names noted last, and so never too many.

/** More than are ever in use at once, and few enough to forget those that moved away. */
const maxRemembered = 1_000;

export class NewestEntries<V> {
  readonly #entries = new Map<string, V>();

  get(name: string): V | undefined {
    return this.#entries.get(name);
  }

  /** The name is the newest one then; where there are too many, the oldest goes. */
  set(name: string, value: V): void {
    this.#entries.delete(name);
    this.#entries.set(name, value);
    const oldest = this.#entries.keys().next().value;
    if (this.#entries.size > maxRemembered && oldest !== undefined) this.#entries.delete(oldest);
  }

  /** Answers the value, and forgets it. */
  take(name: string): V | undefined {
    const value = this.#entries.get(name);
    this.#entries.delete(name);
    return value;
  }

  /** Null where nothing was noted. */
  newest(): { name: string; value: V } | null {
    const last = [...this.#entries].at(-1);
    return last ? { name: last[0], value: last[1] } : null;
  }
}
