// Names of states on a Tinker server (R32): nobody hashes its weights, so a state is named for what was done. The name says which batches
// are in it, not which bits.
import { sha256Hex } from '../../base/sha256.js';
import type { Digest } from '../../spec/records/parts.js';
import { canonicalText } from './canonical.js';

const kind = 'longhaul.named-state/1';

interface ServedBase {
  service: string;
  model: string;
  rank: number;
  seed: number;
}

export function nameOfBase(base: ServedBase): Digest {
  return sha256Hex(`${kind}\n${canonicalText(base)}\n`);
}

export function nameOfState(previous: Digest, stepId: Digest): Digest {
  return sha256Hex(`${kind}\n${previous}\n${stepId}\n`);
}

/** Name of the saved state after a step. The server's list is no proof that the state exists (R36). */
export function nameOfSave(step: number, stepId: Digest): string {
  return `s${String(step).padStart(6, '0')}-${stepId.slice(0, 16)}`;
}

/** Step of a saved state; null for another name. */
export function stepOfSave(name: string): number | null {
  const match = /^s(\d{6,})-[0-9a-f]{16}$/.exec(name);
  return match ? Number(match[1]) : null;
}

/** Name of the weights from which samples of a state are drawn. */
export function nameOfSampler(state: Digest): string {
  return `w-${state.slice(0, 16)}`;
}

export function isSamplerOf(name: string, state: Digest): boolean {
  return name.startsWith('w') && name.endsWith(`-${state.slice(0, 16)}`);
}
