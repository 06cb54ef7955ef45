// Refuses a rebase that is not needed or cannot succeed. A rebase ends the run's workflow, so these checks come first.
import { nameOfNumerics, sameNumerics } from '../../spec/records/numerics.js';
import type { Numerics } from '../../spec/records/numerics.js';
import type { PoolView } from '../../workflows/messages.js';
import { inFolder } from '../output.js';
import type { TemporalFlags } from '../temporal-access.js';

/** Throws if the run already has the wanted numerics. */
export function refuseEqualNumerics(run: string, has: Numerics, wanted: Numerics): void {
  if (!sameNumerics(has, wanted)) return;
  throw new Error(`${run} has numerics ${nameOfNumerics(has)} already: there is nothing to rebase`);
}

/**
 * Throws if a living node still has the run's own numerics, or if no living node has the wanted numerics. `flags` go into the commands that
 * the error suggests.
 */
export function refuseNeedlessRebase(
  run: string,
  { nodes }: Pick<PoolView, 'nodes'>,
  has: Numerics,
  wanted: Numerics,
  flags: TemporalFlags,
): void {
  const list = `longhaul nodes${inFolder(flags)}`;
  const alive = (numerics: Numerics): string[] =>
    nodes
      .filter(({ state, numerics: offered }) => state === 'up' && offered && sameNumerics(offered, numerics))
      .map(({ id }) => id);
  const own = alive(has);
  if (own.length > 0)
    throw new Error(
      `${run} needs no rebase: it can continue with its own numerics ${nameOfNumerics(has)}, which ${own.join(', ')} ` +
        `${own.length === 1 ? 'offers' : 'offer'} (${list}). Nothing was changed`,
    );
  if (alive(wanted).length === 0)
    throw new Error(
      `no living node has numerics ${nameOfNumerics(wanted)}, so ${run} could not continue (${list}): ` +
        'first start a node worker whose engine has them. Nothing was changed',
    );
}
