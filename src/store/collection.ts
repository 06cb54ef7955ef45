// Garbage collection (R23): what is about to be deleted is recorded, then others have time to object, then their references are
// read again, and only then is anything deleted. A collection that is killed at any moment has lost nothing, and the next
// one finishes: it looks at what there is, not at what the other one meant to do.
import type { RetentionSpec } from '../spec/run-spec.js';
import { recordDigest } from './canonical.js';
import { checkpointHome, listCheckpoints } from './checkpoints.js';
import { encodeFolded, type FoldedEpisodes, readFoldedEpisodes, type StoredEpisode } from './episodes.js';
import { inParallel } from './in-parallel.js';
import {
  checkpointFolder,
  checkpointManifestKey,
  checkpointsFolder,
  collectionsFolder,
  episodeKey,
  episodesFolder,
  foldedEpisodesKey,
  parseStepFolder,
  planKey,
  stepFolder,
  stepsFolder,
} from './layout.js';
import type { ObjectStore } from './object-store.js';
import { openRunView } from './quarantine.js';
import { appendSequence, readSequence, requireRecord } from './records.js';
import { needsOf } from './references.js';
import { keptCheckpoints } from './retention.js';
import { lastCommittedStep, readRun, readUpdate } from './run-records.js';
import { NewerSchema, OlderSchema, UnreadableRecord } from './store-errors.js';

export interface CollectionOptions {
  /** Null keeps every checkpoint. */
  retention: RetentionSpec | null;
  /** Evaluated steps, best first; asked before the record is written, and again after the grace. */
  bestSteps: () => Promise<readonly number[]>;
}

export interface CollectionPlan {
  /** Of checkpoints that go. */
  checkpoints: number[];
  /** Committed steps whose episodes go into one file. */
  episodes: number[];
  /** Why each other checkpoint stays, by step. */
  kept: Map<number, string[]>;
}

export interface Collected extends Omit<CollectionPlan, 'kept'> {
  /** Number of the record; null where there was nothing to collect. */
  n: number | null;
  /** Checkpoints of the record that somebody needed by the time the grace was over. */
  spared: number[];
  /** Steps whose episodes were left as they were, and why. */
  left: { step: number; problem: string }[];
  /** Bytes of what was deleted, less those of what was written. */
  freed: number;
}

/** Names what a collection would delete, and deletes nothing. Throws `UnreadableRecord` where it cannot tell what is needed. */
export async function planCollection(
  store: ObjectStore,
  run: string,
  options: CollectionOptions,
): Promise<CollectionPlan> {
  const { first, stored, kept } = await checkpointsOf(store, run, options);
  const last = await lastCommittedStep(store, run);
  const halfDeleted = await halfDeletedCheckpoints(store, run, stored);
  const view = await openRunView(store, run);
  const steps = (await store.listFolder(stepsFolder(run)))
    .flatMap((name) => parseStepFolder(name) ?? [])
    .filter((step) => step >= Math.max(first, 1) && step <= last);
  const unfolded = await inParallel(steps, async (step) => {
    if (!(await store.listFolder(stepFolder(run, step))).includes('episodes/')) return false;
    return (await view.listFolder(episodesFolder(run, step))).length > 0;
  });
  return {
    checkpoints: [...stored.filter((step) => !kept.has(step)), ...halfDeleted].sort((a, b) => a - b),
    episodes: steps.filter((_, index) => unfolded[index]),
    kept,
  };
}

/** Records what `planCollection` names, waits `graceMs`, looks again at what others need, and deletes the rest. */
export async function collect(
  store: ObjectStore,
  run: string,
  options: CollectionOptions & {
    graceMs: number;
    by: string;
    wait: (ms: number) => Promise<void>;
    /** The record is written; what follows may be killed. */
    onRecorded?: (n: number, plan: CollectionPlan) => void;
  },
): Promise<Collected> {
  const plan = await planCollection(store, run, options);
  const collected: Collected = { n: null, checkpoints: [], episodes: [], spared: [], left: [], freed: 0 };
  if (plan.checkpoints.length === 0 && plan.episodes.length === 0) return collected;
  const { n } = await appendSequence(store, collectionsFolder(run), 'gc', (next) => ({
    schema: 'longhaul.gc/1',
    n: next,
    run,
    checkpoints: plan.checkpoints,
    episodes: plan.episodes,
    grace_s: options.graceMs / 1000,
    observed: { at: new Date().toISOString(), by: options.by },
  }));
  collected.n = n;
  options.onRecorded?.(n, plan);
  await options.wait(options.graceMs);
  const { kept } = await checkpointsOf(store, run, options);
  for (const step of plan.checkpoints) {
    if (kept.has(step)) collected.spared.push(step);
    else {
      collected.freed += await deleteCheckpoint(store, run, step);
      collected.checkpoints.push(step);
    }
  }
  const view = await openRunView(store, run);
  for (const step of plan.episodes) {
    const problem = await foldStep(view, run, step, collected).catch((error: Error) => {
      const unread = [UnreadableRecord, OlderSchema, NewerSchema];
      if (unread.some((kind) => error instanceof kind)) return error.message;
      throw error;
    });
    if (problem === null) collected.episodes.push(step);
    else collected.left.push({ step, problem });
  }
  return collected;
}

/** Those under the run itself, and why some of them stay; an ancestor's are for a collection of that one. */
async function checkpointsOf(
  store: ObjectStore,
  run: string,
  { retention, bestSteps }: CollectionOptions,
): Promise<{ first: number; stored: number[]; kept: CollectionPlan['kept'] }> {
  const record = await readRun(store, run);
  const first = (record.lineage?.step ?? -1) + 1;
  const stored = (await listCheckpoints(store, record)).filter((step) => step >= first);
  const [needed, best] = [await needsOf(store, run), await bestSteps()];
  return { first, stored, kept: keptCheckpoints(stored, { retention, needed, best }) };
}

/** A collection that was killed may have left files of checkpoints whose manifests it had deleted. */
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

/** The manifest first: without it there is no checkpoint, so nobody meets half of one. Answers the bytes it had. */
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

/**
 * One file first, read back from the store; then no single record goes that it does not hold in every detail. Answers why some
 * stayed, or null.
 */
async function foldStep(
  view: ObjectStore,
  run: string,
  step: number,
  collected: Collected,
): Promise<string | null> {
  const singles = await readSingles(view, run, step);
  let folded = await readFoldedEpisodes(view, run, step);
  if (!folded) {
    const problem = await problemOf(view, run, step, singles);
    if (problem !== null) return problem;
    const bytes = await encodeFolded(run, step, [...singles.values()]);
    if (bytes === null) return 'its episodes are too many for one file';
    await view.create(foldedEpisodesKey(run, step), bytes);
    collected.freed -= bytes.length;
    folded = await readFoldedEpisodes(view, run, step);
  }
  const same = [...singles].filter(([key, { record }]) => isFolded(folded, key, record));
  await inParallel(same, ([key]) => view.delete(key));
  collected.freed += same.reduce((sum, [, { size }]) => sum + size, 0);
  return same.length === singles.size ? null : 'episodes beside its file say otherwise than the file';
}

type Single = StoredEpisode & { size: number };

async function readSingles(view: ObjectStore, run: string, step: number): Promise<Map<string, Single>> {
  const infos: { key: string; size: number; modified: Date }[] = [];
  for await (const info of view.list(episodesFolder(run, step))) infos.push(info);
  const episodes = await inParallel(infos, async ({ key, size, modified }): Promise<[string, Single]> => {
    const record = await requireRecord(view, key, 'episode');
    return [key, { record, recordedAt: modified, size }];
  });
  return new Map(episodes);
}

/** Evidence of what went wrong is not tidied away: only what the step's records say, whole, becomes one file. */
async function problemOf(
  view: ObjectStore,
  run: string,
  step: number,
  singles: ReadonlyMap<string, Single>,
): Promise<string | null> {
  const plan = await requireRecord(view, planKey(run, step), 'plan');
  const { identity } = await readUpdate(view, run, step);
  const played = plan.kind === 'grpo' && !plan.rebased;
  const seats = played ? plan.slots.length * plan.samples_per_slot : 0;
  if (singles.size !== seats) return `it has ${singles.size} episodes, its plan has ${seats}`;
  for (const [key, { record }] of singles) {
    const { slot, sample, outcome } = record;
    if (key !== episodeKey(run, step, slot, sample)) return `${key} says slot ${slot}, sample ${sample}`;
    if (record.plan !== identity.plan) return `${key} belongs to another plan`;
    const value = outcome.status === 'graded' ? outcome.value : null;
    if (identity.outcomes[slot]?.[sample] !== value)
      return `the outcome of ${key} is not the one in update.json`;
  }
  return null;
}

/** A worker that stood still while the step was folded may have written one that differs in its clocks alone. */
function isFolded(folded: FoldedEpisodes | null, key: string, record: StoredEpisode['record']): boolean {
  const found = folded?.get(key);
  return found !== undefined && recordDigest(found.record) === recordDigest(record);
}
