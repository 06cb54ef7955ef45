// One episode on an open session: its calls by the server's contract, its rewards, its end, and its grade.
import { isObject, numberIn } from '../../base/json.js';
import type { ToolCall, ToolSpec } from '../../spec/records/task.js';
import { EnvironmentError, type Environment, type Grade, type ToolResult } from '../environment.js';
import { ErrorFrame, type OpenEnvConnection, type ReplyFrame } from './openenv-connection.js';
import type { Contract } from './openenv-server.js';
import { ExclusiveCalls, gradeOf } from '../episode-calls.js';
import {
  failedReset,
  gradeOfNoCall,
  hasEnded,
  malformed,
  observedReward,
  type RewardRule,
} from './observed-reward.js';
import {
  errorText,
  isReward,
  problemText,
  readToolAnswer,
  readToolResult,
  shownText,
  textOf,
  textResult,
} from '../tool-results.js';

/** Thrown if there is neither a grade nor a reward for the episode. */
export class NoReward extends EnvironmentError {
  constructor(message: string) {
    super('failed', 'grade', message);
  }
}

interface EpisodeParts {
  url: string;
  connection: OpenEnvConnection;
  contract: Contract;
  tools: readonly ToolSpec[];
  /** The server's name of the session's world. */
  world: string;
  rule: RewardRule;
  /** Null: the server grades by reward alone. */
  gradingToken: string | null;
  /** Reply to the reset; null if another process sent it. */
  opening: ReplyFrame | null;
  /** True if the task has its own prompt. */
  hasPrompt: boolean;
  request: (frame: Record<string, unknown>, phase: 'call' | 'grade', key: string) => Promise<ReplyFrame>;
  /** Called at the end. `isIdle`: the session can serve another episode. */
  onClose: (isIdle: boolean) => void;
  /** True if the server has no frame that asks for a grade. */
  onUngraded: () => void;
}

export function openEnvEpisode(parts: EpisodeParts): Environment {
  const { url, connection, contract, tools, world, rule, gradingToken, opening, request } = parts;
  let newest = observedReward(opening?.data ?? {});
  /** The steps' rewards; empty before the first. */
  const rewards: number[] = [];
  /** Why the steps' rewards have no sum. */
  let noSum: string | null = null;
  /** True if a call's observation may have had a reward. */
  let hasActed = opening === null;
  /** The server's explanation of the newest reward; empty if it gives none. */
  let said = '';
  const calls = new ExclusiveCalls();

  async function callTool(call: ToolCall, turn: number, tryNumber: number): Promise<ToolResult> {
    if (contract.act && call.name !== contract.act.name)
      return textResult(`there is no tool ${call.name}: the only one is ${contract.act.name}`, true);
    const metadata = { turn, try: tryNumber };
    const data = contract.act
      ? call.arguments
      : { type: 'call_tool', tool_name: call.name, arguments: call.arguments, metadata };
    const reply = await request({ type: 'step', data }, 'call', `call-${turn}-${tryNumber}`).catch(
      (error: unknown) => {
        if (contract.act) return badAction(error);
        throw error;
      },
    );
    if ('isError' in reply) return reply;
    const { observation } = reply.data;
    const answer =
      contract.act && isObject(observation)
        ? { kind: 'result' as const, result: textResult(shownText(observation)) }
        : answerIn(reply.data);
    hasActed = true;
    newest = observedReward(reply.data, errorOf(answer));
    if (newest.value !== null) rewards.push(newest.value);
    noSum ??= newest.problem;
    said = explanationIn(reply.data);
    const ends = hasEnded(reply.data) ? { ends: true as const } : {};
    if (answer.kind === 'result') return { ...answer.result, ...ends };
    throw new EnvironmentError('failed', answer.reason, `${url}: ${call.name}: ${answer.message}`);
  }

  async function gradeByFrame(finalAnswer: string, tryNumber: number): Promise<Grade | undefined> {
    const data = { token: gradingToken, final_answer: finalAnswer, try: tryNumber };
    try {
      const reply = await request({ type: 'grade', data }, 'grade', `grade-${tryNumber}`);
      const { value: given, explanation, error } = reply.data;
      const value = isReward(given) ? (numberIn(given) ?? Number(given)) : null;
      if (value === null)
        throw new EnvironmentError(
          'failed',
          'grade',
          `${url} graded without a number: it ${malformed(given)}`,
        );
      const failure = value === 0 ? errorText(error) : null;
      if (failure !== null)
        throw new EnvironmentError('failed', 'grade', `${url} graded 0 beside an error: ${failure}`);
      return graded([value], textOf(explanation, ''));
    } catch (error) {
      const cause = error instanceof EnvironmentError ? error.cause : undefined;
      if (!(cause instanceof ErrorFrame) || cause.code !== 'UNKNOWN_TYPE') throw error;
      parts.onUngraded();
      return undefined;
    }
  }

  const graded = (given: readonly number[], explanation: string): Grade =>
    gradeOf(given, { success_at: rule.success_at, explanation, giver: `${url} gave` });

  function gradeByReward(): Grade {
    const problem = newest.problem ?? (rule.reward === 'sum' ? noSum : null);
    if (problem !== null) throw new EnvironmentError('failed', 'grade', `${url} ${problem}`);
    if (rule.reward === 'sum' && rewards.length > 0) return graded(rewards, said);
    if (newest.value !== null) return graded([newest.value], said);
    const fixes = gradingToken === null ? ['set grading_token_env if the server grades by token'] : [];
    // OpenEnv's own server writes NaN as null.
    if (hasActed)
      throw new NoReward(
        `${url} gave no reward and no grade; ${fixes[0] ?? 'it cannot grade'} (a reward of NaN arrives as none, too)`,
      );
    if (gradeOfNoCall(contract.kind, rule) === 0)
      return graded([0], 'no call was made, and the reset gave no reward');
    if (rule.no_call === undefined) fixes.push('set no_call: 0 if doing nothing solves no task');
    throw new NoReward(
      `${url} gave no reward and no grade${fixes.length === 0 ? '' : `; ${fixes.join(', or ')}`}: no call was made, and its reset gave none`,
    );
  }

  const failure = opening && failedReset(opening.data);
  if (failure !== null)
    throw new EnvironmentError('failed', 'open', `${url} ends the episode at its reset: ${failure}`);
  const { sessionId } = connection;
  // Tools show a world when they are asked; a game's first position is shown only here.
  const isShown = contract.kind === 'gym' || !parts.hasPrompt;
  const text = isShown ? openingText(contract, opening?.data.observation) : '';
  if (text === '' && !parts.hasPrompt)
    throw new EnvironmentError(
      'failed',
      'open',
      `${url} shows nothing at the reset, and the task has no prompt`,
    );
  return {
    tools,
    ...(text === '' ? {} : { opening: text }),
    ...(sessionId === undefined ? {} : { session: { url, id: sessionId, world } }),
    callTool: (call, { turn, tryNumber }) => calls.run(() => callTool(call, turn, tryNumber)),
    grade: ({ finalAnswer, tryNumber }) =>
      calls.run(
        async () =>
          (gradingToken === null ? undefined : await gradeByFrame(finalAnswer, tryNumber)) ?? gradeByReward(),
      ),
    close() {
      if (calls.end()) parts.onClose(!calls.inFlight);
      return Promise.resolve();
    },
  };
}

/** The part of a call's answer that the model reads; servers may answer without an observation, or with one that is no object. */
function answerIn({
  observation,
  error,
  result,
}: Record<string, unknown>): ReturnType<typeof readToolAnswer> {
  if (isObject(observation)) return readToolAnswer(observation);
  if (observation !== undefined && observation !== null)
    return { kind: 'result', result: readToolResult(observation) };
  const beside = { ...(error === undefined ? {} : { error }), ...(result === undefined ? {} : { result }) };
  return Object.keys(beside).length > 0 && (errorText(error) !== null || result !== undefined)
    ? readToolAnswer(beside)
    : { kind: 'result', result: textResult('the server showed nothing') };
}

/** The error that the model reads in the answer of its call; null if there is none. */
function errorOf(answer: ReturnType<typeof readToolAnswer>): string | null {
  if (answer.kind === 'failed') return answer.message;
  const { content, isError } = answer.result;
  if (!isError) return null;
  return (
    content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join(' ') || 'the tool failed'
  );
}

/** An action that the server does not accept is a mistake of the model. */
function badAction(error: unknown): ToolResult {
  const cause = error instanceof EnvironmentError ? error.cause : undefined;
  if (!(cause instanceof ErrorFrame) || cause.code !== 'VALIDATION_ERROR') throw error;
  const { errors } = cause.data;
  const problems = Array.isArray(errors) ? errors.filter(isObject).map(problemText) : [];
  return textResult(problems.length === 0 ? cause.message : problems.join('\n'), true);
}

/** The part of the reset's answer that the model reads: its `prompt` if there is one, else the whole observation. */
function openingText({ kind }: Contract, observation: unknown): string {
  if (!isObject(observation)) return '';
  if (typeof observation.prompt === 'string') return observation.prompt;
  const shown = shownText(observation);
  return kind === 'mcp' && shown === '{}' ? '' : shown;
}

/** `metadata.explanation`: in the observation, or since OpenEnv 0.4.0 also beside it. The model sees neither. */
function explanationIn({ metadata, observation }: Record<string, unknown>): string {
  const within = isObject(observation) ? observation.metadata : undefined;
  for (const place of [metadata, within]) {
    const text = isObject(place) ? place.explanation : undefined;
    if (typeof text === 'string') return text;
  }
  return '';
}
