// Turns the text of an episode into tokens. Rollouts and demonstrations both use this file, so the warm start trains on exactly the token
// sequences of rollouts.
import type { SamplingPlan } from '../spec/records/parts.js';
import type { ToolSpec } from '../spec/records/task.js';
import type { ChatMessage, ChatTemplate } from './chat-template.js';
import { systemPrompt } from './system-prompt.js';
import { doneMark, thinkingMarks } from './tool-formats/marks.js';
import type { ToolFormat } from './tool-formats/tool-format.js';
import type { TurnContext } from './tool-formats/turn-piece.js';
import type { Tokenizer } from './tokenizer.js';

export interface TextCoder {
  tokenizer: Tokenizer;
  template: ChatTemplate;
  format: ToolFormat;
  /** Ids of further tokens that end a text, from the model's `generation_config.json`. */
  eosTokens: readonly number[];
}

/** Picks the members of a coder from an object that has more. */
export function textCoder({ tokenizer, template, format, eosTokens }: TextCoder): TextCoder {
  return { tokenizer, template, format, eosTokens };
}

interface PromptInput {
  prompt: string;
  env_variables: Readonly<Record<string, string>>;
  /** Null for a drill: it has no system prompt. */
  tools: readonly ToolSpec[] | null;
  sampling: Pick<SamplingPlan, 'system_prompt' | 'tools_format'>;
}

/** Token ids of the prompt, up to the first turn of the model. */
export function promptTokens(coder: TextCoder, input: PromptInput): Promise<readonly number[]> {
  const { prompt, env_variables, tools, sampling } = input;
  if (tools === null) return encodePrompt(coder, input);
  // Cached: a group's samples share their prompt, and each environment's tool list is a single object.
  const memo = promptsOf(coder.template, tools);
  const key = JSON.stringify([prompt, env_variables, sampling.system_prompt, sampling.tools_format]);
  const known = memo.get(key);
  if (known) return known;
  const tokens = encodePrompt(coder, input);
  memo.set(key, tokens);
  tokens.catch(() => memo.delete(key));
  const oldest = memo.keys().next().value;
  if (memo.size > rememberedPrompts && oldest !== undefined) memo.delete(oldest);
  return tokens;
}

type PromptMemo = Map<string, Promise<readonly number[]>>;

const rememberedPrompts = 256;
const prompts = new WeakMap<ChatTemplate, WeakMap<readonly ToolSpec[], PromptMemo>>();

function promptsOf(template: ChatTemplate, tools: readonly ToolSpec[]): PromptMemo {
  const byTools = prompts.get(template) ?? new WeakMap<readonly ToolSpec[], PromptMemo>();
  prompts.set(template, byTools);
  const memo = byTools.get(tools) ?? new Map<string, Promise<readonly number[]>>();
  byTools.set(tools, memo);
  return memo;
}

function encodePrompt(
  { tokenizer, template, format }: TextCoder,
  input: PromptInput,
): Promise<readonly number[]> {
  const { prompt, env_variables, tools, sampling } = input;
  const quote = (text: string): string => tokenizer.quote(text);
  const messages: ChatMessage[] = [{ role: 'user', content: quote(prompt) }];
  if (tools) {
    const content = systemPrompt({ env_variables, tools, sampling, format, quote });
    messages.unshift({ role: 'system', content });
  }
  return tokenizer.encodeLong(template.prompt(messages, quote(env_variables['CURRENT_DATE'] ?? '')));
}

/** Token ids between a turn, whose last token is `lastToken`, and the next turn. Control tokens in `observation` stay plain text. */
export function observationTokens(
  coder: TextCoder,
  observation: string,
  lastToken: number | undefined,
): Promise<readonly number[]> {
  const { tokenizer, template } = coder;
  const isClosed = lastToken !== undefined && closingTokens(coder).has(lastToken);
  return tokenizer.encodeLong(template.between(tokenizer.quote(observation), isClosed));
}

/**
 * Tokens that end generation: end of the turn, of a text, and of a tool call or the task. A model that thinks may write a call's end within its
 * thinking, and ends its turns itself.
 */
export function stopTokens(coder: TextCoder): number[] {
  const { template, format, eosTokens } = coder;
  const inner = new Set(idsOf(coder, format.messageEnds));
  const marks = template.mayThink ? [] : idsOf(coder, format.stops);
  const ends = [template.endOfTurn, ...eosTokens].filter((id) => !inner.has(id));
  return [...new Set([...ends, ...marks, ...idsOf(coder, format.closers)])];
}

/**
 * Tokens that close a turn, so that no other token is needed after them: the template's, those that end a text, and those with which the tool
 * format ends a message. Not all of them end generation.
 */
function closingTokens(coder: TextCoder): Set<number> {
  const { template, format, eosTokens } = coder;
  return new Set([...template.closers, ...eosTokens, ...idsOf(coder, format.closers)]);
}

/** Ids of the marks that the tokenizer has as tokens. */
function idsOf({ tokenizer }: TextCoder, marks: readonly string[]): number[] {
  return marks.flatMap((mark) => tokenizer.addedToken(mark) ?? []);
}

/** Token ids of a turn that was not sampled, such as a demonstration's. Only the marks of a turn become control tokens in it. */
export function turnTokens(
  { tokenizer, template, format }: TextCoder,
  text: string,
): Promise<readonly number[]> {
  const closers = template.closers.map((id) => tokenizer.decode([id]));
  return tokenizer.encodeLong(tokenizer.quote(text, [...turnMarks, ...format.marks, ...closers]));
}

const turnMarks: readonly string[] = [...thinkingMarks.flat(), doneMark];

/** Text of a turn without the token that closed it. */
export function turnText(coder: TextCoder, tokens: readonly number[]): string {
  const last = tokens.at(-1);
  const isClosed = last !== undefined && closingTokens(coder).has(last);
  return coder.tokenizer.decode(isClosed ? tokens.slice(0, -1) : tokens);
}

export function turnContext({ tokenizer, template }: TextCoder, tools: readonly ToolSpec[]): TurnContext {
  const isToken = (mark: string): boolean => tokenizer.addedToken(mark) !== undefined;
  return { opensThinking: template.opensThinking, tools, isToken };
}

/** The prompt with what the world shows at its beginning, such as the board of a game. */
export function promptOf(prompt: string, opening: string): string {
  return prompt === '' || opening === '' ? prompt || opening : `${prompt}\n\n${opening}`;
}
