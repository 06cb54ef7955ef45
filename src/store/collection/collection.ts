// Garbage collection (R23): it records what it will delete, gives others time to write references, reads the references again, and only
// then deletes. A collection may be killed at any moment and loses nothing. The next collection looks at what still exists and finishes the work.
import type { RetentionSpec } from '../../spec/run-spec.js';
import { checkpointHome, listCheckpoints, unreadable } from '../runs/checkpoints.js';
import { type Folded, foldEvaluation, foldStep } from './episode-folding.js';
import {
  type EvaluationOfStep,
  findEvaluations,
  type FoundEvaluation,
  nameOf,
  rankSteps,
  sortEvaluations,
} from './evaluated-steps.js';
import type { OpenedStore } from '../runs/episodes.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  batchKey,
  checkpointFolder,
  checkpointManifestKey,
  checkpointsFolder,
  collectionsFolder,
  episodesFolder,
  evaluationEpisodesFolder,
  parseStepFolder,
  stepFolder,
  stepsFolder,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { openRunView } from '../runs/quarantine.js';
import { appendSequence, readSequence } from '../records/records.js';
import { needsOf } from './references.js';
import { keptCheckpoints } from './retention.js';
import { lastCommittedStep, readRun, readUpdate } from '../runs/run-records.js';
import { foldBatch } from '../runs/stored-batch.js';

export interface CollectionOptions {
  retention: RetentionSpec;
  /** Skip steps that a collection before the last one has named: a running run then looks only at its newest steps. */
  onlyNewSteps?: boolean;
}

export interface CollectionPlan {
  checkpoints: number[];
  /** Committed steps to fold: their episodes go into one file. */
  episodes: number[];
  /** Committed steps whose batches are to be compressed. */
  batches: number[];
  /** Whole evaluations to fold, each with a step that has its state. */
  evaluations: EvaluationOfStep[];
  /** Steps that stay unchanged, and why. */
  left: { step: number; problem: string }[];
  /** The reasons why each of the other checkpoints stays, by step. */
  kept: Map<number, string[]>;
}

export interface Collected extends Omit<CollectionPlan, 'kept'> {
  /** Number of the collection's record; null if there was nothing to collect. */
  n: number | null;
  /** Recorded checkpoints that were kept, as something needed them at the end of the grace period. */
  spared: number[];
  /** Bytes deleted minus bytes written. */
  freed: number;
}

/** Lists what a collection would do, and changes nothing. Throws `UnreadableRecord` if it cannot determine what is needed. */
export async function planCollection(
  store: OpenedStore,
  run: string,
  options: CollectionOptions,
): Promise<CollectionPlan> {
  const found = await findEvaluations(store, run);
  const { first, stored, kept } = await checkpointsOf(store, run, options.retention, found);
  const last = await lastCommittedStep(store, run);
  const halfDeleted = await halfDeletedCheckpoints(store, run, stored);
  const view = await openRunView(store, run);
  const done = options.onlyNewSteps ? await foldedBefore(store, run) : null;
  const { whole, unread } = sortEvaluations(found);
  const evaluations = whole.filter((one) => !done?.evaluations.has(nameOf(one)));
  const single = await inParallel(
    evaluations,
    async ({ state, suite }) =>
      (await store.unfolded.listFolder(evaluationEpisodesFolder(state, suite))).length > 0,
  );
  const steps = (await store.listFolder(stepsFolder(run)))
    .flatMap((name) => parseStepFolder(name) ?? [])
    .filter((step) => step >= Math.max(first, 1) && step <= last && !done?.steps.has(step));
  const unfolded = await inParallel(steps, async (step) => {
    const names = await store.listFolder(stepFolder(run, step));
    const episodes =
      names.includes('episodes/') && (await view.listFolder(episodesFolder(run, step))).length > 0;
    return { episodes, batch: (await view.head(batchKey(run, step))) !== null };
  });
  return {
    checkpoints: [...stored.filter((step) => !kept.has(step)), ...halfDeleted].sort((a, b) => a - b),
    episodes: steps.filter((_, index) => unfolded[index]?.episodes),
    batches: steps.filter((_, index) => unfolded[index]?.batch),
    evaluations: evaluations.filter((_, index) => single[index]),
    left: unread,
    kept,
  };
}

/** Records what `planCollection` lists, waits `graceMs`, checks again what others need, and deletes the rest. */
export async function collect(
  store: OpenedStore,
  run: string,
  options: CollectionOptions & {
    graceMs: number;
    by: string;
    wait: (ms: number) => Promise<void>;
    /** Called when the record is written, before anything is deleted. */
    onRecorded?: (n: number, plan: CollectionPlan) => void;
  },
): Promise<Collected> {
  const plan = await planCollection(store, run, options);
  const collected: Collected = {
    ...{ n: null, checkpoints: [], episodes: [], batches: [], evaluations: [], spared: [] },
    ...{ left: [...plan.left], freed: 0 },
  };
  const { checkpoints, episodes, batches, evaluations } = plan;
  if ([checkpoints, episodes, batches, evaluations].every(({ length }) => length === 0)) return collected;
  const { n } = await appendSequence(store, collectionsFolder(run), 'gc', (next) => ({
    schema: 'longhaul.gc/2',
    n: next,
    run,
    ...{ checkpoints, episodes, batches },
    evaluations: evaluations.map(({ state, suite }) => ({ state, suite })),
    grace_s: options.graceMs / 1000,
    observed: { at: new Date().toISOString(), by: options.by },
  }));
  collected.n = n;
  options.onRecorded?.(n, plan);
  // Only deleted checkpoints need the wait: folded episodes are still found in the file, which is written first.
  if (checkpoints.length > 0) await options.wait(options.graceMs);
  const { kept } = await checkpointsOf(store, run, options.retention, await findEvaluations(store, run));
  for (const step of plan.checkpoints) {
    if (kept.has(step)) collected.spared.push(step);
    else {
      collected.freed += await deleteCheckpoint(store, run, step);
      collected.checkpoints.push(step);
    }
  }
  const view = await openRunView(store, run);
  for (const step of plan.episodes) {
    const problem = await problemOf(collected, () => foldStep(view, run, step));
    if (problem === null) collected.episodes.push(step);
    else collected.left.push({ step, problem });
  }
  for (const step of plan.batches) {
    const problem = await problemOf(collected, async () => {
      const { identity } = await readUpdate(view, run, step);
      return { freed: await foldBatch(view, run, step, identity.batch), problem: null };
    });
    if (problem === null) collected.batches.push(step);
    else collected.left.push({ step, problem });
  }
  for (const { step, ...evaluation } of plan.evaluations) {
    const problem = await problemOf(collected, () => foldEvaluation(store, evaluation));
    if (problem === null) collected.evaluations.push({ step, ...evaluation });
    else collected.left.push({ step, problem: `evaluation ${evaluation.suite}: ${problem}` });
  }
  return collected;
}

/** Runs `fold`. Returns why something stayed unchanged, or null; an unreadable record is such a reason. */
async function problemOf(collected: Collected, fold: () => Promise<Folded>): Promise<string | null> {
  try {
    const { freed, problem } = await fold();
    collected.freed += freed;
    return problem;
  } catch (error) {
    return unreadable(error);
  }
}

/**
 * Steps and evaluations that collections have named, without those of the last collection, which may have been killed before its end. If an
 * earlier collection was killed, the collection after it has named the leftovers again.
 */
async function foldedBefore(
  store: ObjectStore,
  run: string,
): Promise<{ steps: Set<number>; evaluations: Set<string> }> {
  const done = { steps: new Set<number>(), evaluations: new Set<string>() };
  const records = await readSequence(store, collectionsFolder(run), 'gc');
  for (const [index, record] of records.entries()) {
    const isLast = index === records.length - 1;
    for (const step of [...record.episodes, ...(record.batches ?? [])])
      if (isLast) done.steps.delete(step);
      else done.steps.add(step);
    for (const name of (record.evaluations ?? []).map(nameOf))
      if (isLast) done.evaluations.delete(name);
      else done.evaluations.add(name);
  }
  return done;
}

/** Checkpoints in the run's own folder, and why some of them stay. An ancestor's checkpoints belong to that run's collections. */
async function checkpointsOf(
  store: ObjectStore,
  run: string,
  retention: RetentionSpec,
  evaluations: readonly FoundEvaluation[],
): Promise<{ first: number; stored: number[]; kept: CollectionPlan['kept'] }> {
  const record = await readRun(store, run);
  const first = (record.lineage?.step ?? -1) + 1;
  const stored = (await listCheckpoints(store, record)).filter((step) => step >= first);
  const needed = await needsOf(store, run);
  const evaluated = rankSteps(evaluations);
  return { first, stored, kept: keptCheckpoints(stored, { retention, needed, evaluated }) };
}

/** Steps of checkpoints from which a killed collection has deleted only the manifest. */
async function halfDeletedCheckpoints(
  store: ObjectStore,
  run: string,
  stored: readonly number[],
): Promise<number[]> {
  const records = await readSequence(store, collectionsFolder(run), 'gc');
  const named = new Set(records.flatMap(({ checkpoints }) => checkpoints));
  if (named.size === 0) return [];
  const home = checkpointHome(await readRun(store, run));
  const there = new Set(await store.listFolder(checkpointsFolder(home)));
  const candidates = [...named].filter((step) => !stored.includes(step));
  const left = await inParallel(candidates, async (step) => {
    if (!there.has(`global_step_${step}/`)) return false;
    return (await store.listFolder(checkpointFolder(home, step))).length > 0;
  });
  return candidates.filter((_, index) => left[index]);
}

/** Deletes the manifest first: no reader then sees half a checkpoint. Returns the checkpoint's size in bytes. */
async function deleteCheckpoint(store: ObjectStore, run: string, step: number): Promise<number> {
  const home = checkpointHome(await readRun(store, run));
  await store.delete(checkpointManifestKey(home, step));
  let bytes = 0;
  const files: string[] = [];
  for await (const { key, size } of store.list(checkpointFolder(home, step))) {
    files.push(key);
    bytes += size;
  }
  for (const key of files) await store.delete(key);
  return bytes;
}
