// planSweep chooses, once, what a sweep evaluates. pairsToDo lists the pairs that have no result yet.
import type { DatasetCache } from '../../data/dataset-cache.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import { nearestName } from '../../base/nearest-name.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  checkSweepId,
  evaluationEpisodesFolder,
  evaluationResultKey,
  sweepKey,
} from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunViews } from '../../store/runs/quarantine.js';
import { adoptOrCreate, requireRecord } from '../../store/records/records.js';
import { listRuns, readNumerics, readRunIfAny } from '../../store/runs/run-records.js';
import { parseSweepSpec, refuseOtherSweep } from '../../sweeps/sweep-input.js';
import { selectCheckpoints } from '../../sweeps/checkpoint-selection.js';
import { environmentsOf, suitesOf } from '../../sweeps/suite-tasks.js';
import { askIdentities, type Asking } from './environment-identities.js';
import { environmentsNow } from '../../store/runs/owners.js';
import { isProjected } from './trajectories.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { Task } from '../../spec/records/task.js';
import { recordDigest } from '../../store/records/canonical.js';
import { newestResult, newestRound } from '../../store/evaluations/evaluation-rounds.js';
import type { MissingPair, PairsToDo, PlannedSweep } from '../sweep-contracts.js';
import { BadKey } from '../../store/record-errors.js';
import {
  pairCount,
  pairOf,
  readSweep,
  readSweepIfAny,
  type SweepPair,
} from '../../store/evaluations/sweeps.js';
import type { SweepRecord, SweepSuiteEntry } from '../../spec/records/sweep-record.js';
import { suitesAreNamedBy, suitesAreOf, type SweepSpec } from '../../spec/sweep-spec.js';

const namesShown = 10;

interface SweepDeps {
  store: ObjectStore;
  datasets: DatasetCache;
}

/**
 * Plans a sweep, or returns the plan that is already stored. Throws `InvalidSpec` with every problem; also if the stored plan has another
 * spec.
 */
export async function planSweep(
  deps: SweepDeps,
  { spec: input, sweep }: { spec: unknown; sweep: string },
  signal?: AbortSignal,
): Promise<PlannedSweep> {
  const spec = parseSweepSpec(input);
  const existing = isSweepId(sweep) ? await readSweepIfAny(deps.store, sweep) : null;
  const record = existing ?? (await planned(deps, spec, sweep, signal));
  refuseOtherSweep(sweep, record.spec, spec);
  return {
    sweep,
    project: spec.project,
    suitesOf: record.suites_of,
    pairs: pairCount(record),
    parallel: spec.parallel,
  };
}

async function planned(
  deps: SweepDeps,
  spec: SweepSpec,
  sweep: string,
  signal: AbortSignal | undefined,
): Promise<SweepRecord> {
  checkId(spec, sweep);
  const choice = await chosen(deps, spec, sweep, signal);
  return (await adoptOrCreate(deps.store, sweepKey(sweep), 'sweep', choice)).record;
}

async function chosen(
  { store, datasets }: SweepDeps,
  spec: SweepSpec,
  sweep: string,
  signal: AbortSignal | undefined,
): Promise<SweepRecord> {
  const suites_of = suitesAreOf(spec);
  const reference = await readRunIfAny(store, suites_of);
  if (reference === null) {
    const runs = await listRuns(store);
    const near = nearestName(suites_of, runs);
    const shown = runs.slice(0, namesShown).join(', ');
    const there =
      shown === '' ? 'it has no run yet' : `it has ${shown}${runs.length > namesShown ? ', …' : ''}`;
    const fix = near === null ? there : `did you mean ${near}?`;
    const problem = `the suites are those of run ${suites_of}, which is not in ${store.address}`;
    throw new InvalidSpec([{ path: suitesAreNamedBy(spec), problem, fix }], `sweep ${spec.name}`);
  }
  const { tasks } = await datasets.load(reference.dataset);
  const numerics = await readNumerics(store, suites_of);
  const source = { record: reference, tasks, numerics, identities: {} };
  const names = suitesOf(spec, source).flatMap(({ record }) => environmentsOf(record));
  const identities = await askIdentities(names, await asking(store, reference, tasks, signal));
  const suites = suitesOf(spec, { ...source, identities }).map((entry) => asked(spec, sweep, entry));
  const digests = suites.map(({ digest }) => digest);
  const { checkpoints, baseline, skipped } = await selectCheckpoints(store, spec, { digests, reference });
  return {
    schema: 'longhaul.sweep/2',
    ...{ sweep, spec, suites_of, checkpoints, suites, baseline, skipped },
    observed: { at: new Date().toISOString() },
  };
}

/** With `again`, puts the sweep's id into the suite, so that no stored result of a run or another sweep matches. */
function asked({ again }: SweepSpec, sweep: string, entry: SweepSuiteEntry): SweepSuiteEntry {
  if (again !== true) return entry;
  const record = { ...entry.record, again: sweep };
  return { ...entry, record, digest: recordDigest(record) };
}

/** Planning waits less long for a server than a run does, because the schedule starts the sweep again later. */
const longestWaitS = 120;

async function asking(
  store: ObjectStore,
  reference: RunRecord,
  tasks: readonly Task[],
  signal: AbortSignal = new AbortController().signal,
): Promise<Asking> {
  const { call_timeout_s: callTimeoutS, max_wait_s } = reference.spec.generator;
  return {
    environments: await environmentsNow(store, reference),
    maxWaitS: Math.min(max_wait_s, longestWaitS),
    onWait: () => undefined,
    ...{ tasks, callTimeoutS, signal },
  };
}

/** Throws `InvalidSpec` if the workflow id that a person chose is not the id of a sweep of this project. */
function checkId({ name, project }: SweepSpec, sweep: string): void {
  const [prefix, own, ...more] = sweep.split('/');
  if (prefix === project && own !== undefined && more.length === 0 && isSweepId(sweep)) return;
  const problem = `has the workflow id eval/${sweep}; sweeps of project ${project} have eval/${project}/NAME`;
  const fix = `start it as eval/${project}/${name}, or put another name of letters, digits, ".", "_" and "-" after eval/${project}/`;
  throw new InvalidSpec([{ path: '', problem, fix }], `sweep ${name}`);
}

function isSweepId(sweep: string): boolean {
  try {
    return checkSweepId(sweep) === sweep;
  } catch (error) {
    if (error instanceof BadKey) return false;
    throw error;
  }
}

/**
 * Looks for pairs without a result, beginning after pair `after`. Returns at most `limit` of them, and the number of the last pair looked
 * at. After a restart, many pairs already have a result.
 */
export async function pairsToDo(
  { store }: Pick<SweepDeps, 'store'>,
  { sweep, after, limit }: { sweep: string; after: number; limit: number },
): Promise<PairsToDo> {
  const record = await readSweep(store, sweep);
  const found: PairsToDo = { pairs: [], seen: after };
  const views = openRunViews(store);
  const last = pairCount(record) - 1;
  while (found.seen < last && found.pairs.length < limit) {
    const next = Math.min(limit - found.pairs.length, last - found.seen);
    const pairs = Array.from({ length: next }, (_, index) => pairOf(record, found.seen + 1 + index));
    const missing = await inParallel(pairs, async (pair) => missingOf(await views(pair.run), pair));
    found.pairs.push(...missing.filter((pair) => pair !== null));
    found.seen += next;
  }
  return found;
}

/** Null if the pair has its result, and the pair's run has the trajectory files. */
async function missingOf(view: ObjectStore, pair: SweepPair): Promise<MissingPair | null> {
  const { n, run, step, state, suite } = pair;
  const done = await newestResult(view, state, suite.record, suite.digest);
  if (done !== null) {
    const result = await requireRecord(view, evaluationResultKey(state, done.digest), 'evaluation');
    const isOwn = result.observed.run === run && result.observed.step === step;
    const isWhole = isOwn || (await isProjected(view, pair, done.suite, result));
    return isWhole ? null : { n, run, step, suite: suite.label, missing: 0 };
  }
  const { tasks, samples_per_task } = suite.record;
  const { digest } = await newestRound(view, state, suite.record, suite.digest);
  const names = await view.listFolder(evaluationEpisodesFolder(state, digest));
  // Counts only `.json.gz`: an episode that was quarantined and played again by another run is in the folder twice.
  const played = names.filter((name) => name.endsWith('.json.gz')).length;
  return { n, run, step, suite: suite.label, missing: tasks.length * samples_per_task - played };
}
