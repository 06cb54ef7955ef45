// The smallest model that can be trained: four weights, AdamW, and log-probs that are linear in the weights. Equal requests in equal order give
// equal bits, so a batch that is missing, doubled or reordered shows in any comparison.
import type { AdamParams } from '../../../../src/engine/tinker/service.js';

const size = 4;
const vocabulary = 64;

/** A target token whose gradient is not finite. */
export const poison = vocabulary - 1;

export interface Adapters {
  weights: number[];
  /** First and second moments of the optimizer, and its steps. */
  first: number[];
  second: number[];
  steps: number;
}

/** A sequence as a request holds it: for each place, the target and what the loss takes. */
export interface Sequence {
  tokens: number[];
  targets: number[];
  /** Empty: 1 everywhere. */
  weights: number[];
  /** Absent for a cross-entropy. */
  advantages?: number[];
  old?: number[];
}

const zeros = (): number[] => new Array<number>(size).fill(0);

export const freshAdapters = (): Adapters => ({
  weights: zeros(),
  first: zeros(),
  second: zeros(),
  steps: 0,
});

export const noGradient = zeros;

export const copyOf = ({ weights, first, second, steps }: Adapters): Adapters => ({
  weights: [...weights],
  first: [...first],
  second: [...second],
  steps,
});

export const withoutMoments = (adapters: Adapters): Adapters => ({
  ...freshAdapters(),
  weights: [...adapters.weights],
});

export function areEqual(a: Adapters, b: Adapters): boolean {
  return a.steps === b.steps && haveEqualWeights(a, b) && same(a.first, b.first) && same(a.second, b.second);
}

export function haveEqualWeights(a: Adapters, b: Adapters): boolean {
  return same(a.weights, b.weights);
}

const same = (one: number[], other: number[]): boolean => one.every((value, at) => value === other[at]);

/** How each weight moves the log-prob of `token` after `before`: between −1 and 1. */
const directions = Array.from({ length: vocabulary * vocabulary }, (_, pair) =>
  Array.from({ length: size }, (_, at) => {
    const mixed = Math.imul(pair * size + at + 1, 0x9e3779b1) >>> 0;
    return ((mixed ^ (mixed >>> 13)) % 2001) / 1000 - 1;
  }),
);

const directionOf = (before: number, token: number): number[] =>
  directions[(before % vocabulary) * vocabulary + (token % vocabulary)] as number[];

/** `movement`: about how far one step of rate 1 moves a log-prob. */
export function logprobOf(
  { weights }: Adapters,
  [before, token]: readonly [number, number],
  movement: number,
): number {
  const direction = directionOf(before, token);
  let sum = 0;
  for (let at = 0; at < size; at++) sum += (direction[at] as number) * (weights[at] as number);
  return -12 + movement * sum;
}

/** Log-probs of a sequence's targets. Its gradient is added to `gradient`, if there is one. */
export function passOver(
  adapters: Adapters,
  { tokens, targets, weights, advantages, old }: Sequence,
  movement: number,
  gradient: number[] | null,
): number[] {
  return tokens.map((before, at) => {
    const target = targets[at] as number;
    const logprob = logprobOf(adapters, [before, target], movement);
    const weight = weights[at] ?? 1;
    if (gradient === null || weight === 0) return logprob;
    const pull = advantages ? (advantages[at] as number) * Math.exp(logprob - (old?.[at] ?? 0)) : weight;
    const direction = directionOf(before, target);
    for (let one = 0; one < size; one++)
      gradient[one]! -= target === poison ? Infinity : pull * (direction[one] as number);
    return logprob;
  });
}

/** Takes the optimizer's step, sets the gradient to zero, and returns its norm. */
export function step(adapters: Adapters, gradient: number[], adam: AdamParams): number {
  const { weights, first, second } = adapters;
  adapters.steps += 1;
  let norm = 0;
  for (let at = 0; at < size; at++) {
    const slope = gradient[at] as number;
    norm += slope * slope;
    const [drift, power] = [
      adam.beta1 * (first[at] as number) + (1 - adam.beta1) * slope,
      adam.beta2 * (second[at] as number) + (1 - adam.beta2) * slope * slope,
    ];
    [first[at], second[at]] = [drift, power];
    const mean = drift / (1 - adam.beta1 ** adapters.steps);
    const spread = Math.sqrt(power / (1 - adam.beta2 ** adapters.steps));
    weights[at]! -= adam.learning_rate * (mean / (spread + adam.eps));
    gradient[at] = 0;
  }
  return Math.sqrt(norm);
}
