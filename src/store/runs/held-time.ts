// Counts from the records how long a run was paused, blocked or without a workflow. Each resume, and each claim by another workflow, ends a
// time in which the run stood still; that time began at the last sign of work.
import type { AttemptRecord } from '../../spec/records/attempt-records.js';
import type { ControlRecord } from '../../spec/records/control-records.js';
import type { OwnerRecord } from '../../spec/records/run-records.js';
import { isAtState } from './step-attempts.js';

interface HeldSeconds {
  paused: number;
  blocked: number;
  unowned: number;
}

/** All control and owner records of a run, in order. */
export interface Driving {
  control: readonly ControlRecord[];
  owners: readonly OwnerRecord[];
}

/** The run continued at `at` (ms since the epoch). `pause`: the pause that ended then. */
interface GoingOn {
  at: number;
  holder: keyof HeldSeconds;
  pause?: { at: number; now: boolean };
}

/** Seconds held between two commits (ms since the epoch). `attempts`: attempts that count towards the second commit's step. */
export function heldBetween(
  from: number,
  to: number,
  attempts: readonly AttemptRecord[],
  { control, owners }: Driving,
): HeldSeconds {
  const held = { paused: 0, blocked: 0, unowned: 0 };
  const signs = [from, ...attempts.map(timeOf)];
  const begun = attempts.filter(({ activity }) => !isAtState(activity)).map(timeOf);
  const all = [...resumptions(control), ...takeovers(owners)].sort((a, b) => a.at - b.at);
  for (const { at, holder, pause } of all.filter((one) => one.at > from && one.at <= to)) {
    // A pause takes effect at the end of the step; here the resume came before that.
    const changedNothing = pause && !pause.now && pause.at > from && begun.some((time) => time < pause.at);
    const lastSign = Math.max(...signs.filter((sign) => sign <= at), pause?.at ?? 0);
    if (!changedNothing) held[holder] += (at - lastSign) / 1000;
    signs.push(at);
  }
  return held;
}

function timeOf({ observed }: { observed: { at: string } }): number {
  return Date.parse(observed.at);
}

/** A `resume` is recorded only if the run was held: by a pause, or blocked by a failure. */
function resumptions(control: readonly ControlRecord[]): GoingOn[] {
  let pause: GoingOn['pause'];
  const found: GoingOn[] = [];
  for (const record of control) {
    const { kind, now = false } = record.change as { kind: string; now?: boolean };
    if (kind === 'pause') pause = { at: timeOf(record), now };
    if (kind !== 'resume') continue;
    found.push({ at: timeOf(record), ...(pause ? { holder: 'paused', pause } : { holder: 'blocked' }) });
    pause = undefined;
  }
  return found;
}

function takeovers(owners: readonly OwnerRecord[]): GoingOn[] {
  const driver = (index: number): string | undefined => owners[index]?.firstExecutionRunId;
  const others = owners.filter((_, index) => index > 0 && driver(index) !== driver(index - 1));
  return others.map((claim) => ({ at: timeOf(claim), holder: 'unowned' }));
}
