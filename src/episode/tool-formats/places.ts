// Finds the matches of a pattern in a text. The text is searched only once, however often the matches are needed.

export class Places {
  #found: number[] | undefined;

  /** `pattern`: with the flag `g`. */
  constructor(
    private readonly text: string,
    private readonly pattern: RegExp,
  ) {}

  /** Index of the first match that begins at `start` or later; undefined if there is none. */
  from(start: number): number | undefined {
    this.#found ??= [...this.text.matchAll(this.pattern)].map(({ index }) => index);
    let [low, high] = [0, this.#found.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#found[middle] as number) < start) low = middle + 1;
      else high = middle;
    }
    return this.#found[low];
  }
}
