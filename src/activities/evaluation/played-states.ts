// Reduces the episodes of a state on a suite to a few numbers each. Reading thousands of transcripts is the slowest part of a comparison,
// so the numbers are stored when the evaluation is complete. If the stored numbers are missing or unreadable, they are computed again from
// the episodes.
import { requireEpisode } from '../step/episode-record.js';
import type { TalliedSample, TallyRecord } from '../../spec/records/sweep-record.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationEpisodesFolder, tallyKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { adoptOrCreate, readRecord } from '../../store/records/records.js';
import { isUnreadable } from '../../store/record-errors.js';
import type { SweepPair } from '../../store/evaluations/sweeps.js';
import { addEpisode, emptyTally, type PlayedSample, type TaskTally } from '../../sweeps/tallies.js';

/**
 * The played episodes of a pair. `isKept`: the pair's result is stored, so no further episode will be added and all runs see the same
 * episodes. Throws `UnreadableRecord` for an episode that cannot be read or belongs to another plan or state (R8).
 */
export async function readTally(store: ObjectStore, pair: SweepPair, isKept: boolean): Promise<TaskTally[]> {
  const known = isKept ? await readKept(store, pair) : null;
  if (known) return known;
  const tally = emptyTally(pair.suite.record);
  const source = { plan: pair.suite.digest, state: pair.state };
  const folder = evaluationEpisodesFolder(pair.state, pair.suite.digest);
  const names = (await store.listFolder(folder)).filter((name) => !name.endsWith('/'));
  // Reads a limited number in parallel: one at a time would be slow, and all at once would need too much memory.
  await inParallel(names, async (name) => {
    addEpisode(tally, await requireEpisode(store, `${folder}${name}`, source));
  });
  if (isKept) await keep(store, pair, tally);
  return tally;
}

async function keep(
  store: ObjectStore,
  { state, suite }: SweepPair,
  tally: readonly TaskTally[],
): Promise<void> {
  const samples = tally.map((task) => task.samples.flatMap((sample) => (sample ? [rowOf(sample)] : [])));
  const record: TallyRecord = { schema: 'longhaul.tally/1', state, suite: suite.digest, samples };
  const key = tallyKey(state, suite.digest);
  if (fits(record, tally)) await adoptOrCreate(store, key, 'tally', record).catch(ignoreUnread);
}

async function readKept(store: ObjectStore, pair: SweepPair): Promise<TaskTally[] | null> {
  const record = await readRecord(store, tallyKey(pair.state, pair.suite.digest), 'tally').catch(
    ignoreUnread,
  );
  if (!record) return null;
  const tally = emptyTally(pair.suite.record);
  if (!fits(record, tally)) return null;
  for (const [slot, samples] of record.samples.entries()) {
    const task = tally[slot];
    if (task) task.samples = samples.map(sampleOf);
  }
  return tally;
}

function fits({ samples }: TallyRecord, tally: readonly TaskTally[]): boolean {
  return (
    samples.length === tally.length && samples.every((of, slot) => of.length === tally[slot]?.samples.length)
  );
}

/** Returns null for a stored file that is damaged or has another version: the episodes hold the same numbers. */
function ignoreUnread(error: unknown): null {
  if (isUnreadable(error)) return null;
  throw error;
}

function rowOf({ reward, turns, tool_calls, tool_errors }: PlayedSample): TalliedSample {
  return [reward, turns, tool_calls, tool_errors];
}

function sampleOf([reward, turns, tool_calls, tool_errors]: TalliedSample): PlayedSample {
  return { reward, turns, tool_calls, tool_errors };
}
