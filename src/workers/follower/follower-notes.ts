// A follower's notes on disk: why its tracker is behind, and sums that are costly to compute again. The tracker itself is the cursor, so
// losing this file neither loses nor repeats a point.
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';

const notesSchema = z.object({
  schema: z.literal('longhaul.follower/1'),
  run: z.string(),
  sink: z.string(),
  /** Last step that the tracker received; null before the first. */
  step: z.number().int().nonnegative().nullable(),
  totals: z
    .object({
      step: z.number().int().nonnegative(),
      tokens: z.number(),
      gpu_seconds: z.number(),
      usd: z.number(),
      at: z.string(),
      figures: z.record(z.string(), z.number()),
    })
    .nullable()
    // Totals in an earlier version's format are computed again.
    .catch(null),
  /**
   * Why the tracker or channel `sink` is behind, with the fix if there is one. `what`: what it lacks, such as `points behind step 12`;
   * `since`: ISO 8601. Null if it keeps up.
   */
  notice: z.object({ sink: z.string(), what: z.string(), reason: z.string(), since: z.string() }).nullable(),
});
export type FollowerNotes = Omit<z.output<typeof notesSchema>, 'schema'>;
export type DroppedNotice = NonNullable<FollowerNotes['notice']>;

export const notesPath = (folder: string, run: string, sink: string): string =>
  join(folder, run, `${sink.replaceAll(/[^A-Za-z0-9_-]/g, '_')}.json`);

/** Empty if the file is missing or unreadable: nothing depends on it. */
export async function readNotes(folder: string, run: string, sink: string): Promise<FollowerNotes> {
  const none: FollowerNotes = { run, sink, step: null, totals: null, notice: null };
  const parsed = notesSchema.safeParse(await readIfWhole(notesPath(folder, run, sink)));
  if (!parsed.success) return none;
  const { schema: _, ...notes } = parsed.data;
  return notes.run === run && notes.sink === sink ? notes : none;
}

export function writeNotes(folder: string, notes: FollowerNotes): Promise<void> {
  const path = notesPath(folder, notes.run, notes.sink);
  return replaceFile(path, { schema: 'longhaul.follower/1', ...notes });
}

/** Null if the file is missing or cannot be read. */
export async function readIfWhole(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as unknown;
  } catch {
    return null;
  }
}

/** Replaces the whole file: a reader sees either the old file or the new one. */
export async function replaceFile(path: string, value: unknown): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`;
  await mkdir(dirname(path), { recursive: true });
  try {
    await writeFile(temporary, `${JSON.stringify(value)}\n`, { flag: 'wx' });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}
