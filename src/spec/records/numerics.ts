// The numerics of an engine. Equal numerics give equal bits, so a run keeps the numerics with which it began (R18). Workflows import this
// file, so it must stay deterministic and import only types.
import type { z } from 'zod';
import type { EngineNumerics, numerics } from './parts.js';

/** What must be equal for two engines to compute the same bits (R18). */
export type Numerics = z.infer<typeof numerics>;

export function sameNumerics(a: Numerics, b: Numerics): boolean {
  return a.backend === b.backend && a.version === b.version && a.service === b.service && a.model === b.model;
}

/** Text such as `cpu/2`, which `--numerics` accepts, or `tinker/1 Qwen/Qwen3-8B at hosted`. */
export function nameOfNumerics({ backend, version, service, model }: Numerics): string {
  return `${backend}/${version}${model === undefined ? '' : ` ${model} at ${service ?? '?'}`}`;
}

/** `model.numerics` of a spec. */
export function backendOf({ numerics }: { numerics?: EngineNumerics }): EngineNumerics {
  return numerics ?? 'cpu';
}

/** What a run whose base model is not recorded yet needs of a node: a model on a Tinker server, or an engine with these numerics. */
export interface NeededNumerics {
  /** `model.served.name` */
  served?: string;
  /** `model.numerics`; absent: `cpu`. */
  backend?: string;
}

export function offersModel({ backend, model }: Numerics, needed: NeededNumerics): boolean {
  return needed.served === undefined ? backend === (needed.backend ?? 'cpu') : model === needed.served;
}
