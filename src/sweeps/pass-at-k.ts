// pass@k: the chance that at least one of k samples of a task passes. Estimated without bias from n ≥ k samples (Chen et al. 2021):
// 1 − C(n−c, k) / C(n, k), c of n passed. The plain 1 − (1 − c/n)^k is too low.

/** Throws a RangeError unless 1 ≤ k ≤ n and 0 ≤ c ≤ n. */
export function passAtK(n: number, c: number, k: number): number {
  if (!(k >= 1 && k <= n && c >= 0 && c <= n)) {
    throw new RangeError(`pass@${k} of ${c} passes among ${n} samples: k must be 1 to n, and passes 0 to n`);
  }
  // As a product, which does not overflow as factorials would.
  let none = 1;
  for (let i = n - c + 1; i <= n; i++) none *= Math.max(0, 1 - k / i);
  return 1 - none;
}

/** The values of k to report for n samples a task: 1, 2, 4, … and n itself. */
export function ksOf(samples: number): number[] {
  const ks: number[] = [];
  for (let k = 1; k < samples; k *= 2) ks.push(k);
  return [...ks, samples];
}
