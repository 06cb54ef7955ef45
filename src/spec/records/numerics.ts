// The numerics that decide a run's bits: equal numerics give equal states, so a run goes on with those that it began with (R18). Workflows
// import this file as it is.
import type { z } from 'zod';
import type { numerics } from './parts.js';

/** What must be equal for two engines to compute the same bits (R18). */
export type Numerics = z.infer<typeof numerics>;

export function sameNumerics(a: Numerics, b: Numerics): boolean {
  return a.backend === b.backend && a.version === b.version && a.service === b.service && a.model === b.model;
}

/** `cpu/2`, as `--numerics` takes it, or `tinker/1 Qwen/Qwen3-8B at hosted`. */
export function nameOfNumerics({ backend, version, service, model }: Numerics): string {
  return `${backend}/${version}${model === undefined ? '' : ` ${model} at ${service ?? '?'}`}`;
}

/** What a run needs of a node before its base is recorded: a Tinker server's model of this name, or none. */
export function offersModel({ backend, model }: Numerics, served: string | null): boolean {
  return served === null ? backend !== 'tinker' : model === served;
}
