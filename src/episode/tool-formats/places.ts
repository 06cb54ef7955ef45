// Where a pattern stands in a text: looked for once, however often it is asked.

export class Places {
  #found: number[] | undefined;

  /** `pattern`: with the flag `g`. */
  constructor(
    private readonly text: string,
    private readonly pattern: RegExp,
  ) {}

  /** Index of the first match that does not begin before `start`; undefined if there is none. */
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
