// How a model on a Tinker server is known to hold the weights after a step (R37): by the log-probs of a few sequences of that step, which were
// recorded when it was applied. A model that lacks the step, or has other weights, gives others.
import { trainedLogprobs } from '../../engine/tinker/passes.js';
import type { Datum } from '../../engine/tinker/wire.js';
import type { RecordedCheck } from '../../spec/records/served-model.js';

/** The check of a step: what is sent, and the log-probs that must come back. */
export interface WeightCheck extends RecordedCheck {
  step: number;
  data: Datum[];
}

/** How far weights are from those that were recorded. */
interface CheckedWeights {
  /** Mean distance of the log-probs. NaN if one is not finite. */
  distance: number;
  /** More than this is another state. */
  bound: number;
}

/** A pass of a few sequences costs little beside a step's. */
const mostSequences = 4;
const enoughPlaces = 64;
/** A record names no more places than this. */
const mostPlaces = 256;

/**
 * The sequences of a check, out of the first mini-batch: of those that move the weights, the shortest ones. A function of the batch alone, so
 * that everyone who applies it chooses the same.
 */
export function checkedSequences(miniBatch: readonly (readonly Datum[])[]): Datum[] {
  const all = miniBatch.flat();
  const moving = all.filter(moves);
  const shortestFirst = [...(moving.length > 0 ? moving : all)].sort(
    (a, b) => a.tokens.length - b.tokens.length,
  );
  const chosen: Datum[] = [];
  for (let places = 0; places < enoughPlaces && chosen.length < mostSequences;) {
    const datum = shortestFirst[chosen.length];
    if (!datum) break;
    chosen.push(datum);
    places += placesOf(datum);
  }
  return chosen;
}

/** Without what a loss alone needs. */
export function forCheck(chosen: readonly Datum[]): Datum[] {
  return chosen.map(({ tokens, inputs: { target_tokens, weights } }) => ({
    tokens,
    inputs: { target_tokens: target_tokens!, weights: weights! },
  }));
}

/** At the places that are compared. */
export function checkedLogprobs(
  data: readonly Datum[],
  outputs: readonly Record<string, number[]>[],
): number[] {
  return trainedLogprobs(data, outputs).slice(0, mostPlaces);
}

export function recordedCheck(before: readonly number[], after: readonly number[]): RecordedCheck {
  return { logprobs: after.map(shortened), moved: shortened(meanDistance(before, after)) };
}

/**
 * A state that lacks the check's step is as far away as the step moved these log-probs. The bound is a tenth of that; half of it after a batch
 * was applied again, since servers may add up gradients in another order. `tolerance`: distance within which this server gives equal weights
 * (`model.served.weights_tolerance`).
 */
export function boundOf({ moved }: RecordedCheck, tolerance: number, appliedAgain = false): number {
  return Math.max(moved / (appliedAgain ? 2 : 10), tolerance);
}

export function compared(
  check: RecordedCheck,
  found: readonly number[],
  tolerance: number,
  appliedAgain = false,
): CheckedWeights {
  return {
    distance: meanDistance(check.logprobs, found),
    bound: boundOf(check, tolerance, appliedAgain),
  };
}

/** Why `found` are not the log-probs of the state that the check knows; null if they are. */
export function problemOf(
  check: Omit<WeightCheck, 'data'>,
  found: readonly number[],
  tolerance: number,
  appliedAgain = false,
): string | null {
  const weights = compared(check, found, tolerance, appliedAgain);
  return isSame(weights) ? null : differenceText(check, weights);
}

export function isSame({ distance, bound }: CheckedWeights): boolean {
  return distance <= bound;
}

/** True if the check can tell the state from the one before its step. */
export function tellsApart(check: RecordedCheck, tolerance: number): boolean {
  return boundOf(check, tolerance, true) > tolerance;
}

export function differenceText(
  { step, moved }: Pick<WeightCheck, 'step' | 'moved'>,
  { distance, bound }: CheckedWeights,
): string {
  return (
    `log-probs of logged sequences lie ${figure(distance)} from those recorded after step ${step}, on average, and the bound is ` +
    `${figure(bound)} (the step moved them by ${figure(moved)})`
  );
}

export function meanDistance(a: readonly number[], b: readonly number[]): number {
  const sum = a.reduce((total, value, at) => total + Math.abs(value - (b[at] ?? NaN)), 0);
  return a.length === b.length ? sum / a.length : NaN;
}

function moves({ inputs: { advantages } }: Datum): boolean {
  return advantages === undefined || advantages.data.some((value) => value !== 0);
}

function placesOf({ inputs }: Datum): number {
  return (inputs['weights']?.data ?? []).filter((weight) => weight !== 0).length;
}

/** Log-probs are float32: more digits say nothing. */
function shortened(value: number): number {
  return Number(value.toPrecision(7));
}

function figure(value: number): string {
  return Number.isFinite(value) ? String(Number(value.toPrecision(3))) : 'infinitely far';
}
