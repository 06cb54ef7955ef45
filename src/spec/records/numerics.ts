// The numerics that decide a run's bits: equal numerics give equal states, so a run goes on with those that it began with (R18). Workflows
// import this file as it is.
import type { z } from 'zod';
import type { numerics } from './parts.js';

/** What must be equal for two engines to compute the same bits (R18). */
export type Numerics = z.infer<typeof numerics>;

export function sameNumerics(a: Numerics, b: Numerics): boolean {
  return a.backend === b.backend && a.version === b.version;
}

/** `cpu/2`, as `--numerics` takes it. */
export function nameOfNumerics({ backend, version }: Numerics): string {
  return `${backend}/${version}`;
}
