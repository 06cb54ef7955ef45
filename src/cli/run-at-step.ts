// Parses `RUN@STEP` from the command line.
import { timelinesNamed } from '../activities/run/fork-run.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readRun } from '../store/runs/run-records.js';
import { printable } from './output.js';

interface NamedPlace {
  name: string;
  /** Null if no step is named. */
  step: number | null;
}

export function parsePlace(text: string): NamedPlace {
  const [, name, step] = /^([^@]+)(?:@(.*))?$/s.exec(text) ?? [];
  if (name === undefined) throw new Error(`${JSON.stringify(text)} is not understood: give RUN@STEP`);
  if (step === undefined) return { name, step: null };
  if (!/^[0-9]{1,9}$/.test(step))
    throw new Error(
      `${JSON.stringify(step)} is not a step: give a whole number, 0 or more, as in ${name}@20`,
    );
  return { name, step: Number(step) };
}

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
