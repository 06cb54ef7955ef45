// The reward of one observation. A grader that fails often leaves an error beside reward 0: that is no grade, or the policy would learn
// that its actions were bad.
import { isObject, numberIn, writeJson } from '../../base/json.js';
import { errorText, isReward } from '../tool-results.js';

interface ObservedReward {
  /** Null if the observation has no reward, or if the reward is no grade. */
  value: number | null;
  /** Why the reward is no grade, as the end of a sentence that begins with the server; null without a problem. */
  problem: string | null;
}

/** How rewards become a grade. */
export interface RewardRule {
  /** The grade: `last`: the newest observation's reward; `sum`: the sum of all steps' rewards. */
  reward: 'last' | 'sum';
  /** Rewards are divided by it, so that 1 is a solved task. */
  success_at: number;
  /** Grade of an episode without a call whose reset gave no reward; absent: `gradeOfNoCall` decides. */
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

/** `failedWith`: the error in the observation as the model sees it, if it answers a failed call; else null. */
export function observedReward(
  data: Readonly<Record<string, unknown>>,
  failedWith: string | null = null,
): ObservedReward {
  const { reward } = data;
  if (reward === undefined || reward === null) return { value: null, problem: null };
  if (!isReward(reward)) return { value: null, problem: malformed(reward) };
  const value = numberIn(reward) ?? Number(reward);
  const error = value === 0 ? graderError(data, hasEnded(data), failedWith) : null;
  const problem = error === null ? null : `gave the reward ${value} beside an error: ${shortened(error)}`;
  return { value: problem === null ? value : null, problem };
}

/** The environment has ended the episode. Not every server writes a boolean. */
export function hasEnded({ done }: Readonly<Record<string, unknown>>): boolean {
  return done === true || numberIn(done) === 1 || (typeof done === 'string' && done.toLowerCase() === 'true');
}

/** The error that makes a reward of 0 no grade. Before the end of an episode, the error of a call is the model's mistake, and does not count. */
function graderError(
  data: Readonly<Record<string, unknown>>,
  isEnd: boolean,
  failedWith: string | null,
): string | null {
  const hidden = hiddenError(data);
  if (isEnd) return hidden ?? errorWithin(data.observation) ?? failedWith;
  return failedWith === null ? hidden : null;
}

/** An error that the model does not see. */
function hiddenError({ observation, ...data }: Readonly<Record<string, unknown>>): string | null {
  const { metadata, info } = isObject(observation) ? observation : {};
  return firstOf([data, data.metadata, data.info, metadata, info], errorWithin);
}

/** The error of a reset that ends its episode at once; null if there is none. */
export function failedReset(data: Readonly<Record<string, unknown>>): string | null {
  return hasEnded(data) ? (hiddenError(data) ?? errorWithin(data.observation)) : null;
}

/** Keys under which servers report an error of the grader. */
const errorKey =
  /^(?:(?:grader|grading|verifier|verification|judge|reward|scor(?:er|ing)|eval(?:uator|uation)?|server|env(?:ironment)?|internal)_?)?(?:errors?|error_?message|exception|traceback)$/i;

function errorWithin(place: unknown): string | null {
  if (!isObject(place)) return null;
  return firstOf(
    Object.keys(place).filter((key) => errorKey.test(key)),
    (key) => failureText(place[key]),
  );
}

/** The error as text: its message, its HTTP status, or its type. Null if there is no error, which Python also writes as `None`. */
function failureText(error: unknown): string | null {
  const status = numberIn(error);
  if (status !== null) return status >= 400 && status < 600 ? `status ${status}` : null;
  if (typeof error === 'string' && /^\s*(?:none|null)\s*$/i.test(error)) return null;
  const kind = isObject(error) ? error.error_type : null;
  return errorText(error) ?? (typeof kind === 'string' && kind !== '' ? kind : null);
}

function firstOf<T>(things: readonly T[], read: (thing: T) => string | null): string | null {
  for (const thing of things) {
    const text = read(thing);
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
