// What is kept of a run's thread between processes. Slack itself holds it too, in the metadata of its messages: a record that is lost,
// damaged or behind is restored from there, so no event is posted twice.
import { createHash } from 'node:crypto';
import type { RunEventId } from './run-event.js';

const schema = 'longhaul.slack-thread/1';

export interface Dropped {
  reason: string;
  /** ISO 8601. */
  at: string;
}

/** As JSON. Events are named by `markId`. */
export interface ThreadRecord {
  schema: typeof schema;
  /** The channel as it was configured, and its id once it is known. */
  configured: string;
  channel: string | null;
  /** `ts` of the message that the thread hangs on. */
  root: string | null;
  delivered: Record<string, string>;
  dropped: Record<string, Dropped>;
}

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
  const record = isRecord(stored) ? stored : null;
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
    schema,
    ...place,
    delivered: Object.fromEntries(delivered),
    dropped: Object.fromEntries(dropped),
  };
}

/** The event's name in metadata and records: unchanged if every system keeps it as it is. */
export function markId(id: RunEventId): string {
  return /^[A-Za-z0-9._-]{1,150}$/.test(id) ? id : createHash('sha256').update(id).digest('hex');
}

function isRecord(value: unknown): value is ThreadRecord {
  const record = value as Partial<ThreadRecord> | null;
  return (
    record?.schema === schema &&
    isTextOrNull(record.channel) &&
    isTextOrNull(record.root) &&
    isObjectOf(record.delivered, (ts) => typeof ts === 'string') &&
    isObjectOf(record.dropped, (one) => typeof (one as Partial<Dropped> | null)?.reason === 'string')
  );
}

const isTextOrNull = (value: unknown): boolean => value === null || typeof value === 'string';

function isObjectOf(value: unknown, fits: (member: unknown) => boolean): boolean {
  return typeof value === 'object' && value !== null && Object.values(value).every(fits);
}
