// Turns the text of an episode into tokens. Rollouts and demonstrations both use this file, so the warm start trains on exactly the token
// sequences of rollouts.
import type { SamplingPlan } from '../spec/records/parts.js';
import type { ToolSpec } from '../spec/records/task.js';
import type { ChatMessage, ChatTemplate } from './chat-template.js';
import { systemPrompt } from './system-prompt.js';
import type { Tokenizer } from './tokenizer.js';

export interface TextCoder {
  tokenizer: Tokenizer;
  template: ChatTemplate;
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

function encodePrompt({ tokenizer, template }: TextCoder, input: PromptInput): Promise<readonly number[]> {
  const { prompt, env_variables, tools, sampling } = input;
  const messages: ChatMessage[] = [{ role: 'user', content: prompt }];
  if (tools) messages.unshift({ role: 'system', content: systemPrompt({ env_variables, tools, sampling }) });
  return tokenizer.encodeLong(template.prompt(messages, env_variables['CURRENT_DATE']));
}

/** Token ids between a turn, whose last token is `lastToken`, and the next turn. */
export function observationTokens(
  { tokenizer, template }: TextCoder,
  observation: string,
  lastToken: number | undefined,
): Promise<readonly number[]> {
  return tokenizer.encodeLong(template.between(observation, lastToken === template.endOfTurn));
}

/** Tokens that end generation: end of a tool call, of the task, of the turn. */
export function stopTokens({ tokenizer, template }: TextCoder): number[] {
  const marks = ['</tool_call>', '<done>'].map((mark) => tokenizer.addedToken(mark));
  return [...new Set([template.endOfTurn, ...marks.filter((id) => id !== undefined)])];
}

/** What a world shows at its beginning is part of the prompt: a game cannot be played without its board. */
export function promptOf(prompt: string, opening: string): string {
  return prompt === '' || opening === '' ? prompt || opening : `${prompt}\n\n${opening}`;
}
