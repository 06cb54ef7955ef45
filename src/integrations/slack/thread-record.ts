// What is kept of a run's thread between processes. Slack itself holds it too, in the metadata of its messages: a record that is lost,
// damaged or behind is restored from there, so no event is posted twice.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { RunEventId } from './run-event.js';

const dropped = z.object({
  reason: z.string(),
  /** ISO 8601. */
  at: z.string(),
});
/** As JSON. Events are named by `markId`. */
const threadRecord = z.object({
  schema: z.literal('longhaul.slack-thread/1'),
  /** The channel as it was configured, and its id once it is known. */
  configured: z.string(),
  channel: z.string().nullable(),
  /** `ts` of the message that the thread hangs on. */
  root: z.string().nullable(),
  delivered: z.record(z.string(), z.string()),
  dropped: z.record(z.string(), dropped),
});
export type Dropped = z.output<typeof dropped>;
export type ThreadRecord = z.output<typeof threadRecord>;

/** Storage of a thread's record; `save` must replace it whole or leave the old one. */
export interface ThreadState {
  /** Null if it is missing or cannot be read. */
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

/** In another channel the thread starts again, without the events delivered already. */
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

/** The event's name in metadata and records: unchanged if every system keeps it as it is. */
export function markId(id: RunEventId): string {
  return /^[A-Za-z0-9._-]{1,150}$/.test(id) ? id : createHash('sha256').update(id).digest('hex');
}
