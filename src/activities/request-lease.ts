// findNode: which living node may take a run. A node with other numerics than the run's is passed over (R18).
import { otherNumerics, sameNumerics } from './numerics.js';
import type { OrchestratorDeps } from './orchestrator-deps.js';
import type { Numerics } from '../spec/records.js';
import { updateKey } from '../store/layout.js';
import { readRecord } from '../store/records.js';
import { timelineOf } from '../store/run-records.js';
import type { ObjectStore } from '../store/object-store.js';

export async function findNode(
  deps: OrchestratorDeps,
  { run, besides }: { run: string; besides?: string },
): Promise<{ node: string } | null> {
  const alive = (await deps.aliveNodes()).filter(({ id }) => id !== besides);
  const recorded = await numericsOf(deps.store, run);
  if (recorded === null) return alive[0] ? { node: alive[0].id } : null;
  const fitting = alive.find(({ numerics }) => numerics && sameNumerics(numerics, recorded));
  // Its engine may be starting; where it turns out to have others, its activities refuse the run.
  const silent = alive.find(({ numerics }) => !numerics);
  const node = fitting ?? silent;
  if (node) return { node: node.id };
  const [unfit] = alive;
  if (unfit?.numerics && besides === undefined)
    throw otherNumerics(run, recorded, `Node ${unfit.id}`, unfit.numerics);
  return null;
}

/** Null before the run has a base: the first node decides. */
async function numericsOf(store: ObjectStore, run: string): Promise<Numerics | null> {
  const base = await readRecord(store, updateKey(await timelineOf(store, run, 0), 0), 'base');
  return base?.identity.numerics ?? null;
}
