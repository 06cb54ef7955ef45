// Folds the episodes of a committed step or a whole evaluation into one file (R23), which holds exactly the records' content.
import { recordDigest } from '../records/canonical.js';
import {
  encodeFolded,
  type EpisodesPlace,
  foldedKeyOf,
  type FoldedEpisodes,
  readFolded,
  singleKeyOf,
  singlesFolderOf,
  type StoredEpisode,
} from '../runs/folded-episodes.js';
import type { OpenedStore } from '../runs/episodes.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationResultKey, evaluationSuiteKey, planKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { requireRecord } from '../records/records.js';
import { readUpdate } from '../runs/run-records.js';

/** `freed`: bytes freed; `problem`: why single records stayed, or null. */
export interface Folded {
  freed: number;
  problem: string | null;
}

/** `view`: the run's view of the store (`openRunView`). */
export function foldStep(view: ObjectStore, run: string, step: number): Promise<Folded> {
  return fold(view, { run, step }, (singles) => problemOfStep(view, run, step, singles));
}

export function foldEvaluation(
  { unfolded: raw }: OpenedStore,
  { state, suite }: { state: string; suite: string },
): Promise<Folded> {
  return fold(raw, { state, suite }, (singles) => problemOfEvaluation(raw, state, suite, singles));
}

/** Writes the file and reads it back; then deletes only those single records that the file holds. */
async function fold(
  store: ObjectStore,
  place: EpisodesPlace,
  problemOf: (singles: ReadonlyMap<string, Single>) => Promise<string | null>,
): Promise<Folded> {
  const singles = await readSingles(store, singlesFolderOf(place));
  let folded = await readFolded(store, place);
  let freed = 0;
  if (!folded) {
    const problem = await problemOf(singles);
    if (problem !== null) return { freed, problem };
    const bytes = await encodeFolded(place, [...singles.values()]);
    if (bytes === null) return { freed, problem: 'its episodes are too many for one file' };
    await store.create(foldedKeyOf(place), bytes);
    freed -= bytes.length;
    folded = await readFolded(store, place);
  }
  const same = [...singles].filter(([key, { record }]) => isFolded(folded, key, record));
  await inParallel(same, ([key]) => store.delete(key));
  freed += same.reduce((sum, [, { size }]) => sum + size, 0);
  const problem =
    same.length === singles.size ? null : 'single episode records differ from those in its file';
  return { freed, problem };
}

type Single = StoredEpisode & { size: number };

async function readSingles(store: ObjectStore, folder: string): Promise<Map<string, Single>> {
  const infos: { key: string; size: number; modified: Date }[] = [];
  for await (const info of store.list(folder)) infos.push(info);
  const episodes = await inParallel(infos, async ({ key, size, modified }): Promise<[string, Single]> => {
    const record = await requireRecord(store, key, 'episode');
    return [key, { record, recordedAt: modified, size }];
  });
  return new Map(episodes);
}

/** Why a step must not be folded, or null: if an episode does not match the step's records, all stay as evidence. */
async function problemOfStep(
  view: ObjectStore,
  run: string,
  step: number,
  singles: ReadonlyMap<string, Single>,
): Promise<string | null> {
  const plan = await requireRecord(view, planKey(run, step), 'plan');
  const { identity } = await readUpdate(view, run, step);
  const played = plan.kind === 'grpo' && !plan.rebased;
  // With waves, a step has more slots than its plan.
  const slots = played && plan.dynamic_sampling ? identity.outcomes : played ? plan.slots : [];
  const rollouts = played ? slots.length * plan.samples_per_slot : 0;
  if (singles.size !== rollouts) return `it has ${singles.size} episodes, but its plan has ${rollouts}`;
  for (const [key, { record }] of singles) {
    const { slot, sample, outcome } = record;
    if (key !== singleKeyOf({ run, step }, record)) return `${key} says slot ${slot}, sample ${sample}`;
    if (record.plan !== identity.plan) return `${key} belongs to another plan`;
    const value = outcome.status === 'graded' ? outcome.value : null;
    if (identity.outcomes[slot]?.[sample] !== value)
      return `the outcome of ${key} is not the one in update.json`;
  }
  return null;
}

/** Why an evaluation must not be folded, or null. A record that one run has set aside does not matter: other runs still read it. */
async function problemOfEvaluation(
  raw: ObjectStore,
  state: string,
  suite: string,
  singles: ReadonlyMap<string, Single>,
): Promise<string | null> {
  const { tasks, samples_per_task } = await requireRecord(raw, evaluationSuiteKey(state, suite), 'suite');
  await requireRecord(raw, evaluationResultKey(state, suite), 'evaluation');
  const rollouts = tasks.length * samples_per_task;
  if (singles.size !== rollouts) return `it has ${singles.size} episodes, but its suite has ${rollouts}`;
  for (const [key, { record }] of singles) {
    if (key !== singleKeyOf({ state, suite }, record))
      return `${key} says slot ${record.slot}, sample ${record.sample}`;
    if (record.plan !== suite || record.state !== state) return `${key} belongs to another evaluation`;
  }
  return null;
}

/** Whether the file holds this record. A worker that was delayed during the fold may write the record again, with other clocks. */
function isFolded(folded: FoldedEpisodes | null, key: string, record: StoredEpisode['record']): boolean {
  const found = folded?.get(key);
  return found !== undefined && recordDigest(found.record) === recordDigest(record);
}
