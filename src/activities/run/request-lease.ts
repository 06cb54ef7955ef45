// requestLease asks the pool for a node with the run's numerics (R18). closedRuns lists the runs that have ended and so hold no nodes
// (R30).
import type { LeaseRequest, RunWorkflow } from '../contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import type { NeededNumerics, Numerics } from '../../spec/records/numerics.js';
import { inParallel } from '../../base/in-parallel.js';
import { readBaseIfAny, readRun, rebasedTo } from '../../store/runs/run-records.js';
import type { ObjectStore } from '../../store/objects/object-store.js';

export async function requestLease(
  deps: OrchestratorDeps,
  { numericsOf, ...request }: Omit<LeaseRequest, 'numerics' | keyof NeededNumerics> & { numericsOf?: string },
): Promise<void> {
  const run = numericsOf ?? request.run;
  const numerics = await recordedNumerics(deps.store, run);
  await deps.requestLease({ ...request, numerics, ...(numerics ? {} : await neededBy(deps.store, run)) });
}

export async function closedRuns(
  deps: Pick<OrchestratorDeps, 'isOver'>,
  { runs }: { runs: RunWorkflow[] },
): Promise<RunWorkflow[]> {
  const over = await inParallel(runs, (run) => deps.isOver(run));
  return runs.filter((_, index) => over[index]);
}

async function neededBy(store: ObjectStore, run: string): Promise<NeededNumerics> {
  const { served, numerics } = (await readRun(store, run)).spec.model;
  if (served) return { served: served.name };
  return numerics === undefined ? {} : { backend: numerics };
}

/** Null before the run has a base record. */
async function recordedNumerics(store: ObjectStore, run: string): Promise<Numerics | null> {
  const rebased = await rebasedTo(store, run);
  if (rebased) return rebased;
  return (await readBaseIfAny(store, run))?.identity.numerics ?? null;
}
