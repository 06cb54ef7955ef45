// Whose bits a run's are: equal numerics give equal states, so a run goes on with those that it began with (R18).
import { EngineError } from '../engine/policy-engine.js';
import type { Numerics } from '../spec/records.js';

export function sameNumerics(a: Numerics, b: Numerics): boolean {
  return a.backend === b.backend && a.version === b.version;
}

/** `who` has `found`, but the records of `run` were computed with `recorded`. */
export function otherNumerics(run: string, recorded: Numerics, who: string, found: Numerics): EngineError {
  return new EngineError(
    'OtherNumerics',
    `${who} computes with numerics ${nameOf(found)}, but run ${run} was computed with ${nameOf(recorded)}: its steps would come out ` +
      `otherwise. Start a node worker of the Longhaul version whose engine has ${nameOf(recorded)} ` +
      `(\`longhaul doctor\` tells an engine’s), or apply its logged batches anew: longhaul rebase ${nameOfRun(run)} --numerics ${nameOf(found)}`,
  );
}

/** A rebase is asked for by name, whatever the timeline. */
function nameOfRun(run: string): string {
  return run.replace(/~[0-9]+$/, '');
}

function nameOf({ backend, version }: Numerics): string {
  return `${backend}/${version}`;
}
