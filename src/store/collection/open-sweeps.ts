// Finds the checkpoints of a run that open sweeps still have to evaluate (R23). A sweep's record serves as its reference: it is written
// before the first evaluation, and the results show what is done.
import { inParallel } from '../../base/in-parallel.js';
import { sweepFolder, sweepsOfProject, sweepsRoot } from '../record-keys.js';
import { newestResult } from '../evaluations/evaluation-rounds.js';
import type { ObjectStore } from '../objects/object-store.js';
import { openRunView } from '../runs/quarantine.js';
import { timelineOf } from '../runs/run-records.js';
import { readSweep } from '../evaluations/sweeps.js';

/** A sweep older than this holds no checkpoints: it may have been cancelled and never started again. */
const openDays = 30;

/** Steps of `run` whose state a sweep has not evaluated yet, each with that sweep. Throws `UnreadableRecord` if a sweep cannot be read. */
export async function openSweepNeeds(
  store: ObjectStore,
  run: string,
  now = Date.now(),
): Promise<{ step: number; by: string }[]> {
  const needs = await inParallel(await openSweeps(store), (sweep) => needsOfSweep(store, sweep, run, now));
  return needs.flat();
}

/** Sweeps that have no comparison yet. */
async function openSweeps(store: ObjectStore): Promise<string[]> {
  const projects = folders(await store.listFolder(sweepsRoot));
  const sweeps = await inParallel(projects, async (project) =>
    folders(await store.listFolder(sweepsOfProject(project))).map((name) => `${project}/${name}`),
  );
  const open = await inParallel(sweeps.flat(), async (sweep) => {
    const names = await store.listFolder(sweepFolder(sweep));
    return names.includes('sweep.json') && !names.some((name) => name.startsWith('comparison.'));
  });
  return sweeps.flat().filter((_, index) => open[index]);
}

async function needsOfSweep(
  store: ObjectStore,
  sweep: string,
  run: string,
  now: number,
): Promise<{ step: number; by: string }[]> {
  const { checkpoints, suites, observed } = await readSweep(store, sweep);
  if (now - Date.parse(observed.at) > openDays * 86_400_000) return [];
  const needs = await inParallel(checkpoints, async (checkpoint) => {
    if ((await timelineOf(store, checkpoint.run, checkpoint.step)) !== run) return [];
    const view = await openRunView(store, checkpoint.run);
    const results = await inParallel(suites, ({ record, digest }) =>
      newestResult(view, checkpoint.state, record, digest),
    );
    return results.includes(null) ? [{ step: checkpoint.step, by: `sweep ${sweep}` }] : [];
  });
  return needs.flat();
}

function folders(names: readonly string[]): string[] {
  return names.flatMap((name) => (name.endsWith('/') ? name.slice(0, -1) : []));
}
