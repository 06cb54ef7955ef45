// The episodes of a state on a suite as a few numbers each. Reading thousands of transcripts takes longer than all else of a
// comparison, so the numbers are kept, `sweeps/tallies/{state}/{suite}.json`, once the evaluation is whole. They are a function of the
// episodes: where they are missing or cannot be read they are made again.
import { z } from 'zod';
import type { EpisodeRecord } from '../spec/records.js';
import { canonicalBytes } from '../store/canonical.js';
import { inParallel } from '../store/in-parallel.js';
import { evaluationEpisodesFolder } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { requireRecord } from '../store/records.js';
import { addEpisode, emptyTally, type PlayedSample, type TaskTally } from './tallies.js';
import type { SweepPair } from './sweep-record.js';

/** By task, then by sample: reward (null: unknown), turns, tool calls, tool errors; null: not played. */
const kept = z.array(
  z.array(z.tuple([z.number().nullable(), z.number(), z.number(), z.number()]).nullable()),
);

const tallyKey = ({ state, suite }: SweepPair): string => `sweeps/tallies/${state}/${suite.digest}.json`;

/** What is played of a pair. `whole`: its result is there, so that nothing is added any more. */
export async function readTally(store: ObjectStore, pair: SweepPair, whole: boolean): Promise<TaskTally[]> {
  const known = whole ? await readKept(store, pair) : null;
  if (known) return known;
  const tally = emptyTally(pair.suite.record);
  const folder = evaluationEpisodesFolder(pair.state, pair.suite.digest);
  const names = (await store.listFolder(folder)).filter((name) => !name.endsWith('/'));
  // One after another would be slow, and all at once too much to hold.
  await inParallel(names, async (name) => {
    const episode: EpisodeRecord = await requireRecord(store, `${folder}${name}`, 'episode');
    addEpisode(tally, episode);
  });
  if (whole) await store.create(tallyKey(pair), canonicalBytes(tally.map(({ samples }) => samples.map(row))));
  return tally;
}

async function readKept(store: ObjectStore, pair: SweepPair): Promise<TaskTally[] | null> {
  const bytes = await store.get(tallyKey(pair));
  if (bytes === null) return null;
  const tally = emptyTally(pair.suite.record);
  let rows: z.infer<typeof kept>;
  try {
    rows = kept.parse(JSON.parse(Buffer.from(bytes).toString('utf8')));
  } catch {
    return null;
  }
  const fits =
    rows.length === tally.length && rows.every((of, slot) => of.length === tally[slot]?.samples.length);
  if (!fits) return null;
  for (const [slot, samples] of rows.entries()) {
    const task = tally[slot];
    if (task) task.samples = samples.map((values) => (values === null ? null : sampleOf(values)));
  }
  return tally;
}

function row(sample: PlayedSample | null): z.infer<typeof kept>[number][number] {
  return sample && [sample.reward, sample.turns, sample.tool_calls, sample.tool_errors];
}

function sampleOf([reward, turns, tool_calls, tool_errors]: [
  number | null,
  number,
  number,
  number,
]): PlayedSample {
  return { reward, turns, tool_calls, tool_errors };
}
