// What is stored about a run's thread between processes. The metadata of Slack's messages contain it too: a record that is lost, damaged or
// old is restored from them, so no event is posted twice.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { RunEventId } from './run-event.js';

const dropped = z.object({
  reason: z.string(),
  /** ISO 8601. */
  at: z.string(),
});
/** The record as JSON. `markId` names the events. */
const threadRecord = z.object({
  schema: z.literal('longhaul.slack-thread/1'),
  /** The channel as configured, and its id once it is known. */
  configured: z.string(),
  channel: z.string().nullable(),
  /** `ts` of the thread's first message. */
  root: z.string().nullable(),
  delivered: z.record(z.string(), z.string()),
  dropped: z.record(z.string(), dropped),
});
export type Dropped = z.output<typeof dropped>;
export type ThreadRecord = z.output<typeof threadRecord>;

/** Storage of a thread's record; `save` must either replace the whole record or keep the old one. */
export interface ThreadState {
  /** The record; null if it is missing or unreadable. */
  load(): Promise<unknown>;
  save(record: ThreadRecord): Promise<void>;
}

export interface ThreadMemory {
  configured: string;
  channel: string | null;
  root: string | null;
  delivered: Map<string, string>;
  dropped: Map<string, Dropped>;
}

/** The stored thread. If the channel was changed, a new thread begins there, without the events that were delivered already. */
export function remembered(stored: unknown, configured: string): ThreadMemory {
  const record = threadRecord.safeParse(stored).data;
  const same = record?.configured === configured;
  return {
    configured,
    channel: same ? record.channel : null,
    root: same ? record.root : null,
    delivered: new Map(Object.entries(record?.delivered ?? {})),
    dropped: new Map(Object.entries(record?.dropped ?? {})),
  };
}

export function recordOf({ delivered, dropped, ...place }: ThreadMemory): ThreadRecord {
  return {
    schema: 'longhaul.slack-thread/1',
    ...place,
    delivered: Object.fromEntries(delivered),
    dropped: Object.fromEntries(dropped),
  };
}

/** The event's name in metadata and records: its id, or a hash of the id if some system might change the id's characters. */
export function markId(id: RunEventId): string {
  return /^[A-Za-z0-9._-]{1,150}$/.test(id) ? id : createHash('sha256').update(id).digest('hex');
}
