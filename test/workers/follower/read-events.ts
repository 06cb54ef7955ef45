// Reads all events of a written run like its followers, and picks out ids and alerts.
import {
  type EventContext,
  type EventCursor,
  newEventCursor,
  readRunEvents,
  type RunEnding,
} from '../../../src/workers/follower/run-events.js';
import type { AlertRaised, RunEvent } from '../../../src/integrations/slack/run-event.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { memoryStore } from './memory-store.js';
import { recordsOf, timeOf, writeAll, type WrittenRun } from './written-run.js';

const noChart = async (): Promise<null> => null;
export const contextAt = (seconds: number, ending: RunEnding | null = null): EventContext => ({
  links: [{ label: 'UI', url: 'http://localhost:8233' }],
  modality: 'tool_use',
  now: timeOf(seconds),
  ending,
  chart: noChart,
});

export async function readAll(
  store: ObjectStore,
  from: EventCursor = newEventCursor,
  context = contextAt(0),
): Promise<{ events: RunEvent[]; cursor: EventCursor }> {
  const events: RunEvent[] = [];
  let cursor = from;
  for (;;) {
    const page = await readRunEvents(store, 'tiny', cursor, context);
    events.push(...page.events);
    // Cursors are stored as JSON.
    cursor = JSON.parse(JSON.stringify(page.cursor)) as EventCursor;
    if (!page.more && page.events.length === 0) return { events, cursor };
  }
}

export async function storeOf(options: Partial<WrittenRun> = {}): Promise<ObjectStore> {
  const store = memoryStore();
  await writeAll(store, recordsOf(options));
  return store;
}

export const ids = (events: readonly RunEvent[]): string[] =>
  events.map(({ id }) => id.replace(/\.[0-9a-f]{8}$/, ''));
export const alerts = (events: readonly RunEvent[]): AlertRaised[] =>
  events.filter((event) => event.kind === 'alert');
