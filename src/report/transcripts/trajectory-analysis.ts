// Counts how episodes went while they stream by: by environment, over training and in the newest evaluation. Memory grows with the number
// of environments, reasons and patterns, not with the number of episodes.
import type { StopReason } from '../../spec/records/episode.js';
import { addError, type ErrorPatterns, noErrors, normalisedError, ranked } from './error-patterns.js';
import type { Trajectory } from './trajectory.js';

export interface TrajectoryCounts {
  episodes: number;
  /** Number of episodes by number of turns. */
  turns: Map<number, number>;
  /** Valid tool calls. */
  calls: number;
  /** Turns whose call was refused or malformed. */
  errors: number;
  /** Number of errors without a valid call. */
  malformed: number;
  /** `repeatedCalls`: calls that repeat an earlier call. `repeating`: episodes with such a call. */
  repeatedCalls: number;
  repeating: number;
  /**
   * Episodes that the model ended as done without success: without any call (`doneWithoutCall`), or after only refused calls
   * (`doneAfterErrors`).
   */
  doneWithoutCall: number;
  doneAfterErrors: number;
  endedBy: Record<StopReason, number>;
  /** Unknown outcomes by reason. */
  unknown: Map<string, number>;
  /**
   * `compared`: groups with at least two graded samples. `varied`: compared groups whose rewards differ; GRPO learns only from these
   * groups.
   */
  groups: { compared: number; varied: number };
  patterns: ErrorPatterns;
}

/**
 * Number of reasons that are counted separately. Environments choose some of the reasons and may write anything, so memory needs a limit.
 */
const reasonsKept = 100;
const otherReasons = 'other reasons';

/** Marks of a trajectory, as bits. Readers filter transcripts by them. */
export const marks = { toolError: 1, repeated: 2, prematureDone: 4, cutOff: 8 } as const;

export function noTrajectories(): TrajectoryCounts {
  return {
    ...{ episodes: 0, turns: new Map<number, number>(), calls: 0, errors: 0, malformed: 0 },
    ...{ repeatedCalls: 0, repeating: 0, doneWithoutCall: 0, doneAfterErrors: 0 },
    endedBy: { done: 0, max_turns: 0, length: 0, unknown: 0, ended: 0 },
    unknown: new Map<string, number>(),
    groups: { compared: 0, varied: 0 },
    patterns: noErrors(),
  };
}

/** Returns the trajectory's marks. */
export function addTrajectory(counts: TrajectoryCounts, trajectory: Trajectory): number {
  const { turns, stop_reason, reason, id } = trajectory;
  const calls = turns.filter(({ call }) => call !== null);
  const errors = turns.filter(({ isError }) => isError);
  const repeated = repeatedCalls(turns.map(({ call }) => call));
  const premature = prematureDone(trajectory);
  counts.episodes += 1;
  increase(counts.turns, turns.length);
  counts.calls += calls.length;
  counts.errors += errors.length;
  counts.malformed += errors.filter(({ call }) => call === null).length;
  counts.repeatedCalls += repeated;
  counts.repeating += Number(repeated > 0);
  counts.doneWithoutCall += Number(premature === 'without a call');
  counts.doneAfterErrors += Number(premature === 'after errors alone');
  counts.endedBy[stop_reason] += 1;
  if (reason !== null) addReason(counts.unknown, normalisedError(reason));
  for (const { tool, error } of errors)
    addError(counts.patterns, {
      tool,
      message: normalisedError(error ?? '(the last turn: its answer is in no record)'),
      example: id,
    });
  return (
    (errors.length > 0 ? marks.toolError : 0) |
    (repeated > 0 ? marks.repeated : 0) |
    (premature === null ? 0 : marks.prematureDone) |
    (isCutOff(stop_reason) ? marks.cutOff : 0)
  );
}

/** `values`: the group's graded values; null for an unknown outcome. */
export function addGroup({ groups }: TrajectoryCounts, values: readonly (number | null)[]): void {
  const graded = values.filter((value) => value !== null);
  if (graded.length < 2) return;
  groups.compared += 1;
  groups.varied += Number(graded.some((value) => value !== graded[0]));
}

export function plusTrajectories(a: TrajectoryCounts, b: TrajectoryCounts): TrajectoryCounts {
  const sum = noTrajectories();
  for (const counts of [a, b]) {
    for (const name of ['episodes', 'calls', 'errors', 'malformed', 'repeatedCalls', 'repeating'] as const)
      sum[name] += counts[name];
    sum.doneWithoutCall += counts.doneWithoutCall;
    sum.doneAfterErrors += counts.doneAfterErrors;
    for (const [turns, count] of counts.turns) increase(sum.turns, turns, count);
    for (const [reason, count] of counts.unknown) addReason(sum.unknown, reason, count);
    for (const reason of Object.keys(sum.endedBy) as StopReason[])
      sum.endedBy[reason] += counts.endedBy[reason];
    sum.groups.compared += counts.groups.compared;
    sum.groups.varied += counts.groups.varied;
    for (const pattern of ranked(counts.patterns)) addError(sum.patterns, pattern);
    sum.patterns.others += counts.patterns.others;
  }
  return sum;
}

/**
 * How the model ended an episode too early: without a call, or after only refused calls, which change nothing. Null otherwise, and for an
 * episode that passed: only the grade can show whether any other episode ended too early.
 */
function prematureDone({
  stop_reason,
  verdict,
  turns,
}: Trajectory): 'without a call' | 'after errors alone' | null {
  if (stop_reason !== 'done' || verdict === 'pass') return null;
  const calls = turns.filter(({ call }) => call !== null);
  if (calls.length === 0) return 'without a call';
  return calls.every(({ isError }) => isError) ? 'after errors alone' : null;
}

function isCutOff(reason: StopReason): boolean {
  return reason === 'max_turns' || reason === 'length';
}

export const cutOff = ({ endedBy }: TrajectoryCounts): number => endedBy.max_turns + endedBy.length;
export const premature = (counts: TrajectoryCounts): number =>
  counts.doneWithoutCall + counts.doneAfterErrors;
export const unknownOutcomes = ({ unknown }: TrajectoryCounts): number =>
  [...unknown.values()].reduce((sum, count) => sum + count, 0);

export function turnsInAll({ turns }: TrajectoryCounts): number {
  return [...turns].reduce((sum, [length, count]) => sum + length * count, 0);
}

/** The least number of turns that `share` of the episodes do not exceed; 0 without episodes. */
export function turnsAt({ turns, episodes }: TrajectoryCounts, share: number): number {
  let seen = 0;
  for (const [length, count] of [...turns].sort(([a], [b]) => a - b)) {
    seen += count;
    if (seen >= share * episodes) return length;
  }
  return 0;
}

function addReason(unknown: Map<string, number>, reason: string, count = 1): void {
  const isKept = unknown.has(reason) || unknown.size < reasonsKept;
  increase(unknown, isKept ? reason : otherReasons, count);
}

function increase<Key>(counts: Map<Key, number>, key: Key, by = 1): void {
  counts.set(key, (counts.get(key) ?? 0) + by);
}

/** From this number on, equal calls count as repeated even with other calls between them. Looking at the same thing twice may be right. */
const often = 3;

/**
 * Number of calls in one episode that repeat an earlier one. `calls` has a text for each turn, equal for equal calls; null for a turn
 * without a call, which is ignored.
 */
export function repeatedCalls(calls: readonly (string | null)[]): number {
  const made = calls.filter((call) => call !== null);
  const times = new Map<string, number>();
  for (const call of made) times.set(call, (times.get(call) ?? 0) + 1);
  const met = new Set<string>();
  let repeated = 0;
  for (const [index, call] of made.entries()) {
    const inRow = made[index - 1] === call;
    if (inRow || (met.has(call) && (times.get(call) ?? 0) >= often)) repeated += 1;
    met.add(call);
  }
  return repeated;
}
