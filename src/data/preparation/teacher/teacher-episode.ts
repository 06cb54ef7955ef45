// One try of a task by a teacher. It reads and writes what a policy does: the same system prompt, calls, observations and end.
import type { Environment, EnvironmentBackend } from '../../../environments/environment.js';
import {
  malformedCallObservation,
  noCallObservation,
  otherCallsNote,
  resultObservation,
} from '../../../episode/observation.js';
import type { FailureLedger } from '../../../episode/failure-ledger.js';
import { promptOf } from '../../../episode/conversation.js';
import { systemPrompt } from '../../../episode/system-prompt.js';
import { toolFormat } from '../../../episode/tool-formats/tool-format.js';
import { actionOf } from '../../../episode/turn-action.js';
import type { TaughtRecord } from '../../../spec/records/preparation-records.js';
import type { Task } from '../../../spec/records/task.js';
import { inWorld } from '../world-tries.js';
import { type ChatEndpoint, type ChatMessage, RefusedConversation } from './chat-endpoint.js';

type Taught = Pick<TaughtRecord, 'value' | 'reason' | 'calls' | 'final_answer' | 'tokens'>;

/** Counts the tokens of all tries, also of failed ones. */
export interface Spending {
  add(tokens: Taught['tokens']): void;
  /** True if the budget is spent, so that no further turn may be requested. */
  readonly isOver: boolean;
  /** Tokens were spent, so the endpoint has answered before. */
  readonly hasBegun: boolean;
}

const maxOutputChars = 20_000;
const format = toolFormat('hermes');
/** The teacher reads plain text, so nothing needs to be quoted. */
const asItIs = (text: string): string => text;

/** Throws an `EnvironmentError` that `ledger` does not charge, and what `ChatEndpoint.next` throws except `RefusedConversation`. */
export async function teach(
  backend: EnvironmentBackend,
  endpoint: ChatEndpoint,
  { task, sample, spend, ledger }: { task: Task; sample: number; spend: Spending; ledger: FailureLedger },
  signal: AbortSignal,
): Promise<Taught> {
  const tokens = { prompt: 0, completion: 0 };
  const ask = async (messages: readonly ChatMessage[]): Promise<string> => {
    if (spend.isOver) throw new RefusedConversation('the budget is spent');
    const reply = await endpoint.next(messages, signal, spend.hasBegun);
    tokens.prompt += reply.tokens.prompt;
    tokens.completion += reply.tokens.completion;
    spend.add(reply.tokens);
    return reply.text;
  };
  const failed = (reason: string): Taught => ({ value: null, reason, calls: [], final_answer: '', tokens });
  try {
    const tried = await inWorld(
      backend,
      task,
      { name: `taught/${sample}`, ledger },
      (environment, tryNumber) =>
        play(environment, { task, ask, turns: endpoint.teacher.max_turns, tryNumber }),
      signal,
    );
    return 'reason' in tried ? failed(tried.reason) : { ...tried.result, tokens };
  } catch (error) {
    if (error instanceof RefusedConversation) return failed(`no answer of the teacher: ${error.message}`);
    throw error;
  }
}

async function play(
  environment: Environment,
  {
    task,
    ask,
    turns,
    tryNumber,
  }: {
    task: Task;
    ask: (messages: readonly ChatMessage[]) => Promise<string>;
    turns: number;
    tryNumber: number;
  },
): Promise<Omit<Taught, 'tokens'>> {
  const { tools, opening = '' } = environment;
  const sampling = { system_prompt: 'skyrl', tools_format: 'json' } as const;
  const messages: ChatMessage[] = [
    {
      role: 'system',
      content: systemPrompt({
        ...{ env_variables: task.env_variables, tools, sampling, format },
        quote: asItIs,
      }),
    },
    { role: 'user', content: promptOf(task.prompt, opening) },
  ];
  const calls: Taught['calls'] = [];
  let answer = '';
  for (let turn = 0; turn < turns; turn++) {
    const text = await ask(messages);
    const { asked, others, isDone, answer: said } = actionOf(text, format, { opensThinking: false, tools });
    answer = said;
    let observation = noCallObservation(format);
    let hasEnded = isDone;
    if (asked?.kind === 'malformed') observation = malformedCallObservation(asked.problem, format);
    if (asked?.kind === 'call') {
      const result = await environment.callTool(asked.call, { turn, tryNumber });
      // The gates show whether the other calls solve the task.
      if (!result.isError) calls.push(asked.call);
      observation = resultObservation(result, maxOutputChars) + otherCallsNote(others);
      hasEnded ||= result.ends === true;
    }
    if (hasEnded) break;
    messages.push({ role: 'assistant', content: text }, { role: 'user', content: observation });
  }
  const final_answer = answer;
  const { outcome } = await environment.grade({ finalAnswer: final_answer, tryNumber });
  return { value: outcome.value, calls, final_answer };
}
