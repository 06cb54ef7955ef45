// The error of a node whose numerics differ from those of a run's records (R18).
import { EngineError } from '../engine/policy-engine.js';
import { nameOfNumerics } from '../spec/records/numerics.js';
import type { Numerics } from '../spec/records/numerics.js';
import { nameOfRun } from '../store/objects/layout.js';

/** `found`: the numerics of `who`; `recorded`: the numerics of the run's records. */
export function otherNumerics(run: string, recorded: Numerics, who: string, found: Numerics): EngineError {
  const [wanted, other] = [nameOfNumerics(recorded), nameOfNumerics(found)];
  return new EngineError(
    'OtherNumerics',
    `${who} computes with numerics ${other}, but run ${run} was computed with ${wanted}, and other numerics give ` +
      `other results. Start a node worker of the Longhaul version whose engine has ${wanted} ` +
      `(\`longhaul doctor\` shows an engine’s numerics), or apply the run’s logged batches with the numerics here: longhaul rebase ${nameOfRun(run)} --numerics ${other}`,
  );
}
