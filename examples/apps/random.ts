// Small seeded random numbers for generated worlds, tasks and faults. The same seed gives the same values on every machine.

/** 32-bit hash of a string (FNV-1a with a final avalanche). */
export function hash32(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

// Without letters and digits that people confuse.
const idCharacters = '23456789ABCDEFGHJKLMNPQRSTUVWXYZ';

/** One stream of random draws (sfc32). Its seed is a text. */
export class Draw {
  private a: number;
  private b: number;
  private c: number;
  private counter = 1;

  constructor(seed: string) {
    this.a = hash32(seed);
    this.b = hash32(`${seed}/b`);
    this.c = hash32(`${seed}/c`);
    // sfc32 needs twelve rounds to mix its state.
    for (let i = 0; i < 12; i++) this.next();
  }

  /** Uniform in [0, 2³²). */
  next(): number {
    const sum = (this.a + this.b + this.counter++) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = (((this.c << 21) | (this.c >>> 11)) + sum) | 0;
    return sum >>> 0;
  }

  /** Uniform integer in [0, bound). */
  below(bound: number): number {
    return Math.floor((this.next() / 0x1_0000_0000) * bound);
  }

  /** True with this probability. */
  chance(probability: number): boolean {
    return this.next() / 0x1_0000_0000 < probability;
  }

  pick<T>(values: readonly T[]): T {
    const value = values[this.below(values.length)];
    if (value === undefined) throw new RangeError('cannot pick from an empty list');
    return value;
  }

  /** A value other than `taken`; `values` must contain one. */
  pickOther<T>(values: readonly T[], taken: T): T {
    return this.pick(values.filter((value) => value !== taken));
  }

  shuffled<T>(values: readonly T[]): T[] {
    const copy = [...values];
    for (let i = copy.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [copy[i], copy[j]] = [copy[j] as T, copy[i] as T];
    }
    return copy;
  }

  /** An id such as `ISS-7Q2K`, which reveals neither order nor content. */
  opaqueId(prefix: string): string {
    let id = `${prefix}-`;
    for (let i = 0; i < 4; i++) id += idCharacters[this.next() >>> 27];
    return id;
  }
}
