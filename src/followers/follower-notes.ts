// What a follower keeps on disk beside its tracker: why the tracker is behind, for whoever asks how a run stands, and sums that are
// costly to add up anew. The tracker itself is the cursor: losing this file loses no point and doubles none.
import { randomUUID } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { createFolderSync } from '../store/folder-sync.js';
import type { RunningTotals } from './step-values.js';

/** What a tracker, or a channel, has not been told, and why. */
export interface DroppedNotice {
  sink: string;
  /** `points behind step 12`; in words for people. */
  what: string;
  /** With the mend, where there is one. */
  reason: string;
  /** Since when it has been so, ISO 8601. */
  since: string;
}

export interface FollowerNotes {
  run: string;
  sink: string;
  /** Last step that the tracker was given; null before the first. */
  step: number | null;
  totals: RunningTotals | null;
  /** Null while it keeps up. */
  notice: DroppedNotice | null;
}

const notesSchema = z.object({
  schema: z.literal('longhaul.follower/1'),
  run: z.string(),
  sink: z.string(),
  step: z.number().int().nonnegative().nullable(),
  totals: z
    .object({
      step: z.number().int().nonnegative(),
      tokens: z.number(),
      gpu_seconds: z.number(),
      usd: z.number(),
    })
    .nullable(),
  notice: z.object({ sink: z.string(), what: z.string(), reason: z.string(), since: z.string() }).nullable(),
});

export const notesPath = (folder: string, run: string, sink: string): string =>
  join(folder, run, `${sink.replaceAll(/[^A-Za-z0-9_-]/g, '_')}.json`);

/** Empty where there are none, and where a kill or a person left something else: nothing depends on them. */
export async function readNotes(folder: string, run: string, sink: string): Promise<FollowerNotes> {
  const none: FollowerNotes = { run, sink, step: null, totals: null, notice: null };
  const text = await readFile(notesPath(folder, run, sink), 'utf8').catch(() => '');
  if (text === '') return none;
  try {
    const { schema: _, ...notes } = notesSchema.parse(JSON.parse(text));
    return notes.run === run && notes.sink === sink ? notes : none;
  } catch {
    return none;
  }
}

/** Replaces the file whole: whoever reads sees the old one or the new one, also after a power cut. */
export async function writeNotes(folder: string, notes: FollowerNotes): Promise<void> {
  const path = notesPath(folder, notes.run, notes.sink);
  const temporary = `${path}.${randomUUID()}.tmp`;
  await mkdir(dirname(path), { recursive: true });
  try {
    const handle = await open(temporary, 'wx');
    try {
      await handle.writeFile(`${JSON.stringify({ schema: 'longhaul.follower/1', ...notes })}\n`);
      await handle.datasync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await createFolderSync(folder).settle(dirname(path));
}

/** Of all trackers of a run, for its status. */
export async function readNotices(
  folder: string,
  run: string,
  sinks: readonly string[],
): Promise<DroppedNotice[]> {
  const notes = await Promise.all(sinks.map((sink) => readNotes(folder, run, sink)));
  return notes.flatMap(({ notice }) => notice ?? []);
}
