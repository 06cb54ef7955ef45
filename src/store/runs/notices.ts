// Notices say what a follower failed to deliver to a tracker or channel, and why. They inform people; no step depends on them. Each change
// is a new record; the newest record of each tracker or channel is current.
import type { NoticeRecord } from '../../spec/records/run-records.js';
import { noticesFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { appendSequence, readSequence } from '../records/records.js';

export type Trouble = NonNullable<NoticeRecord['trouble']>;

/** The current notice of each tracker or channel, in the order of their names. */
export async function readTroubles(
  store: ObjectStore,
  run: string,
): Promise<{ sink: string; trouble: Trouble }[]> {
  return [...troublesOf(await readNotices(store, run))]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([sink, trouble]) => ({ sink, trouble }));
}

export function readNotices(store: ObjectStore, run: string): Promise<NoticeRecord[]> {
  return readSequence(store, noticesFolder(run), 'notice');
}

export function troublesOf(notices: readonly NoticeRecord[]): Map<string, Trouble> {
  const held = new Map<string, Trouble>();
  for (const { sink, trouble } of notices) {
    if (trouble === null) held.delete(sink);
    else held.set(sink, trouble);
  }
  return held;
}

/** `known`: all records of the sequence so far, as the caller, its only author, knows them. */
export function writeNotice(
  store: ObjectStore,
  run: string,
  said: Pick<NoticeRecord, 'sink' | 'trouble'> & { by: string },
  known: readonly NoticeRecord[],
): Promise<NoticeRecord> {
  const { sink, trouble, by } = said;
  const observed = { at: new Date().toISOString(), by };
  return appendSequence(
    store,
    noticesFolder(run),
    'notice',
    (n) => ({ schema: 'longhaul.notice/1', n, sink, trouble, observed }),
    known,
  );
}
