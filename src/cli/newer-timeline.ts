// After a rewind a name is also the id of its first timeline. Commands that read records take the name as that id.
import { timelinesNamed } from '../activities/run/fork-run.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readRun } from '../store/runs/run-records.js';
import { printable } from './printable.js';

/**
 * If the run was rewound, adds a note to the answer: the newest timeline, and the command that answers for it. In `command`, TIMELINE
 * stands for the run.
 */
export async function noteNewerTimeline(store: ObjectStore, run: string, command: string): Promise<void> {
  const { name } = await readRun(store, run);
  const timelines = await timelinesNamed(store, name);
  const newest = timelines.at(-1);
  if (newest === undefined || newest === run || !timelines.includes(run)) return;
  const again = command.replace('TIMELINE', newest);
  console.error(
    printable(`${run} was rewound: ${newest} is the newest timeline of ${name}; to use it: ${again}`),
  );
}
