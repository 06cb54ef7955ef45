// The reward of one observation. A grader that fails often leaves an error beside reward 0: that is no grade, or the policy would learn
// that its actions were bad.
import { isObject, numberIn, writeJson } from '../../base/json.js';
import { errorText, isReward } from '../tool-results.js';

export interface ObservedReward {
  /** Null: there is none, or it is no grade. */
  value: number | null;
  /** Why the reward is no grade, as the end of a sentence that begins with the server; null if it is one, or there is none. */
  problem: string | null;
  /** The problem is the reward itself, and not what lies beside it. */
  isMalformed: boolean;
}

/** How rewards become a grade. */
export interface RewardRule {
  /** `last`: the newest observation's; `sum`: of all steps. */
  reward: 'last' | 'sum';
  /** Rewards are divided by it, so that 1 is a solved task. */
  success_at: number;
  /** Grade of an episode without a call whose reset gave no reward; absent: `gradeOfNoCall` says it. */
  no_call?: 0 | 'unknown';
}

/**
 * Grade of an episode without a call whose reset gave no reward. A sum of no rewards is 0, and so is the return of a gym's episode without a
 * step. A server with tools need not give rewards at all, and doing nothing may be what its task asks for.
 */
export function gradeOfNoCall(
  contract: 'mcp' | 'gym',
  { reward, no_call }: Pick<RewardRule, 'reward' | 'no_call'>,
): 0 | 'unknown' {
  return no_call ?? (contract === 'gym' || reward === 'sum' ? 0 : 'unknown');
}

const shownCharacters = 200;

/** `failedWith`: error of the call that was answered by the observation, as the model sees it; null if it has none. */
export function observedReward(
  data: Readonly<Record<string, unknown>>,
  failedWith: string | null = null,
): ObservedReward {
  const { reward, done } = data;
  if (reward === undefined || reward === null) return { value: null, problem: null, isMalformed: false };
  if (!isReward(reward)) return { value: null, problem: malformed(reward), isMalformed: true };
  const value = numberIn(reward) ?? Number(reward);
  const error = value === 0 ? graderError(data, done === true, failedWith) : null;
  const problem = error === null ? null : `gave the reward ${value} beside an error: ${shortened(error)}`;
  return { value: problem === null ? value : null, problem, isMalformed: false };
}

/** Before the end of an episode, the error of a call is the model's mistake. */
function graderError(
  { observation, metadata, error }: Readonly<Record<string, unknown>>,
  isDone: boolean,
  failedWith: string | null,
): string | null {
  const within = isObject(observation) ? observation : {};
  const beside = [metadata, within.metadata].flatMap((place) => (isObject(place) ? [place.error] : []));
  const hidden = firstError([error, ...beside]);
  if (isDone) return hidden ?? errorText(within.error) ?? failedWith;
  return failedWith === null ? hidden : null;
}

function firstError(places: readonly unknown[]): string | null {
  for (const place of places) {
    const text = errorText(place);
    if (text !== null) return text;
  }
  return null;
}

const noNumbers = ['NaN', 'Infinity', '-Infinity'];

/** Says what a reward is that is neither a finite number nor a boolean. */
export function malformed(reward: unknown): string {
  const json = shortened(writeJson(reward));
  const what =
    numberIn(reward) !== null || noNumbers.includes(reward as string)
      ? String(numberIn(reward) ?? reward)
      : typeof reward === 'string'
        ? `the text ${json}`
        : Array.isArray(reward)
          ? `the list ${json}`
          : isObject(reward)
            ? `the object ${json}`
            : json;
  return `gave as reward ${what}: a reward is a finite number, true or false`;
}

function shortened(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= shownCharacters ? line : `${line.slice(0, shownCharacters)} …`;
}
