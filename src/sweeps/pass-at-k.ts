// pass@k: the chance that at least one of k samples of a task passes. The unbiased estimate from n ≥ k samples, c of which passed, is 1 −
// C(n−c, k) / C(n, k) (Chen et al. 2021). The plain 1 − (1 − c/n)^k is too low.

/** Throws a RangeError unless 1 ≤ k ≤ n and 0 ≤ c ≤ n. */
export function passAtK(n: number, c: number, k: number): number {
  if (!(k >= 1 && k <= n && c >= 0 && c <= n)) {
    throw new RangeError(`pass@${k} of ${c} passes among ${n} samples: k must be 1 to n, and passes 0 to n`);
  }
  // Computed as a product, because factorials would overflow.
  let none = 1;
  for (let i = n - c + 1; i <= n; i++) none *= Math.max(0, 1 - k / i);
  return 1 - none;
}

/** The values of k that are reported for n samples per task: 1, 2, 4, … and n itself. */
export function ksOf(samples: number): number[] {
  const ks: number[] = [];
  for (let k = 1; k < samples; k *= 2) ks.push(k);
  return [...ks, samples];
}
