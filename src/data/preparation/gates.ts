// Checks a task on its environment: its solution must be graded 1, and get the same grade when it is played again; doing nothing must be
// graded 0 at most.
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import type { Environment, EnvironmentBackend } from '../../environments/environment.js';
import { answerToolName } from '../../environments/tool-results.js';
import { isPass, rewardTolerance } from '../../rl/episode-reward.js';
import { promptOf } from '../../episode/conversation.js';
import type { FailureLedger } from '../../episode/failure-ledger.js';
import { contentText } from '../../episode/observation.js';
import { hermesCall } from '../../episode/tool-formats/call-text.js';
import type { GateName, GateRecord } from '../../spec/records/preparation-records.js';
import type { DemonstrationMessage, Task } from '../../spec/records/task.js';
import type { Solution } from '../task-file.js';
import { inWorld } from './world-tries.js';

/** What a gate found; the rest of its record is who checked what, and when. */
export type GateResult = Pick<GateRecord, 'passed' | 'value' | 'reason' | 'errors' | 'messages'> & {
  explanation?: string;
};

export interface GateInput {
  task: Task;
  solution: Solution;
  /** The first gate's result, which `repeat` compares. */
  first?: { value: number | null };
  /** How often `repeat` plays; absent: once. */
  repeats?: number;
  /** Failures of this gate. */
  ledger: FailureLedger;
}

/** Throws the signal's reason, or an `EnvironmentError` that is not charged to the task; the gate then has no result. */
export async function checkGate(
  backend: EnvironmentBackend,
  gate: GateName,
  input: GateInput,
  signal: AbortSignal,
): Promise<GateResult> {
  const calls = gate === 'nothing' ? [] : input.solution.calls;
  const finalAnswer = gate === 'nothing' ? '' : input.solution.final_answer;
  const plays = gate === 'repeat' ? (input.repeats ?? 1) : 1;
  for (let played = 1; ; played++) {
    const name = `gate/${played === 1 ? gate : `${gate}-${played}`}`;
    const tried = await inWorld(
      backend,
      input.task,
      { name, ledger: input.ledger },
      (environment, tryNumber) => play(environment, input.task, { calls, finalAnswer, tryNumber }),
      signal,
    );
    if ('reason' in tried) return { passed: false, value: null, errors: 0, reason: tried.reason };
    const result = judged(gate, tried.result, input);
    if (!result.passed || played === plays) return withCount(result, played, plays);
  }
}

/** Adds to a failure's reason which of several plays it was. */
function withCount(result: GateResult, played: number, plays: number): GateResult {
  const { reason } = result;
  return reason === undefined || plays === 1
    ? result
    : { ...result, reason: `${reason} (time ${played} of ${plays})` };
}

interface Played {
  value: number;
  explanation: string;
  errors: number;
  messages: DemonstrationMessage[];
}

async function play(
  environment: Environment,
  task: Task,
  { calls, finalAnswer, tryNumber }: { calls: Solution['calls']; finalAnswer: string; tryNumber: number },
): Promise<Played> {
  const { opening = '' } = environment;
  const messages: DemonstrationMessage[] = [{ role: 'user', content: promptOf(task.prompt, opening) }];
  let errors = 0;
  let hasEnded = false;
  for (const [turn, call] of withAnswer(calls, finalAnswer, environment).entries()) {
    const { content, isError, ends } = await environment.callTool(call, { turn, tryNumber });
    if (isError) errors += 1;
    messages.push({ role: 'assistant', content: hermesCall(call) });
    hasEnded = ends === true;
    // Calls after the episode's end are the author's mistake; they are neither played nor shown to a model.
    if (hasEnded) break;
    messages.push({ role: 'tool', content: contentText(content) });
  }
  if (!hasEnded) messages.push({ role: 'assistant', content: `${finalAnswer} <done>`.trimStart() });
  const { outcome, explanation } = await environment.grade({ finalAnswer, tryNumber });
  return { value: outcome.value, explanation, errors, messages };
}

/** The calls with the final answer as the model must give it: an environment with a tool for the answer grades only that tool's call. */
function withAnswer(
  calls: Solution['calls'],
  finalAnswer: string,
  { tools }: Environment,
): Solution['calls'] {
  const isAnswer = ({ name }: { name: string }): boolean => name === answerToolName;
  if (finalAnswer === '' || !tools.some(isAnswer) || calls.some(isAnswer)) return calls;
  return [...calls, { name: answerToolName, arguments: { answer: finalAnswer } }];
}

function judged(
  gate: GateName,
  { value, explanation, errors, messages }: Played,
  { first }: GateInput,
): GateResult {
  const reason = problemOf(gate, value, first?.value ?? null);
  return {
    passed: reason === null,
    value,
    errors,
    ...(reason === null ? {} : { reason }),
    // A solution with a mistake must not be imitated.
    ...(gate === 'solution' && reason === null && errors === 0 ? { messages } : {}),
    ...(explanation === '' ? {} : { explanation: withoutKnownSecrets(explanation).slice(0, 500) }),
  };
}

function problemOf(gate: GateName, value: number, first: number | null): string | null {
  if (gate === 'nothing') return value <= rewardTolerance ? null : `doing nothing is graded ${value}`;
  if (gate === 'repeat' && !(first !== null && Math.abs(value - first) <= rewardTolerance))
    return `the solution is graded ${first}, and ${value} when it is played again`;
  return isPass(value) ? null : `the solution is graded ${value}`;
}
