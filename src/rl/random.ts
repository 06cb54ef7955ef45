// Random numbers for planning: hashes of named values. Any draw can be computed separately, and again.

/** 32-bit hash of a list of integers (each up to 2⁵³) and strings. */
export function hash32(...parts: readonly (number | string)[]): number {
  let hash = 0x9e3779b9;
  const mix = (word: number): void => {
    let k = Math.imul(word, 0xcc9e2d51);
    k = Math.imul((k << 15) | (k >>> 17), 0x1b873593);
    hash ^= k;
    hash = (Math.imul((hash << 13) | (hash >>> 19), 5) + 0xe6546b64) | 0;
  };
  for (const part of parts) {
    if (typeof part === 'number') {
      mix(part >>> 0);
      mix(Math.floor(part / 0x1_0000_0000) >>> 0);
    } else {
      for (let i = 0; i < part.length; i++) mix(part.charCodeAt(i));
      // The lengths distinguish ('ab', 'c') from ('a', 'bc').
      mix(part.length | 0x8000_0000);
    }
  }
  hash ^= hash >>> 16;
  hash = Math.imul(hash, 0x85ebca6b);
  hash ^= hash >>> 13;
  hash = Math.imul(hash, 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** Uniform in [0, 1). */
export function uniform(...parts: readonly (number | string)[]): number {
  return hash32(...parts) / 0x1_0000_0000;
}

/** Seed of a step's samples; `times`: how often the step was discarded to be sampled again. */
export function samplingSeed(seed: number, times: number): number {
  return times === 0 ? seed : hash32(seed, 'resample', times);
}

/** 32-bit hash of a text, for use as a part of a key. */
export function hashText(text: string): number {
  return hash32(text);
}

/** The integers 0..n−1 in the order that `parts` determine. */
function permutation(n: number, ...parts: readonly (number | string)[]): number[] {
  const order = Array.from({ length: n }, (_, index) => index);
  const base = hash32(...parts);
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(uniform(base, i) * (i + 1));
    [order[i], order[j]] = [order[j] as number, order[i] as number];
  }
  return order;
}

/** Element `index` of the permutation of `size` integers that the seed determines. */
export function permuted(index: number, size: number, seed: number): number {
  const key = `${size}/${seed}`;
  let order = permutations.get(key);
  if (!order) {
    order = permutation(size, seed);
    permutations.set(key, order);
    if (permutations.size > maxPermutations) permutations.delete(permutations.keys().next().value as string);
  }
  return order[index] as number;
}

// Planning reads one element at a time, so permutations are cached: one for each template and epoch in use.
const maxPermutations = 256;
const permutations = new Map<string, readonly number[]>();
