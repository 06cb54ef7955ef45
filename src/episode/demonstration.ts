// Turns a demonstration into tokens with a loss mask.
//
// Invariant: a demonstration has the same tokens as an episode in which the model writes the same text.
import { isObject, numberIn, parseJson } from '../base/json.js';
import type { SamplingPlan } from '../spec/records/parts.js';
import type { Demonstration, ToolSpec } from '../spec/records/task.js';
import { observationTokens, promptTokens, type TextCoder, turnTokens } from './conversation.js';
import { resultObservation } from './observation.js';
import type { ToolFormat } from './tool-formats/tool-format.js';
import { turnIn } from './tool-formats/shown-turn.js';

interface TokenizedDemonstration {
  tokens: number[];
  prompt_length: number;
  /** Spans `[start, end)` of the assistant's tokens; only these carry loss. */
  spans: { start: number; end: number }[];
}

/**
 * `tools`: the environment's tools; null for a demonstration without `env_key`, which has no system prompt. Throws an Error if the messages
 * do not alternate.
 */
export async function tokenizeDemonstration(
  coder: TextCoder,
  demonstration: Demonstration,
  tools: readonly ToolSpec[] | null,
  sampling: SamplingPlan,
): Promise<TokenizedDemonstration> {
  const [first, ...rest] = demonstration.messages;
  if (first?.role !== 'user') throw new Error(`${nameOf(demonstration)} does not begin with a user message`);
  if (demonstration.env_key !== undefined && tools === null) {
    throw new Error(
      `${nameOf(demonstration)} belongs to ${demonstration.env_key}, but the tools of that environment are missing`,
    );
  }
  const prompt = await promptTokens(coder, {
    prompt: first.content,
    env_variables: demonstration.env_variables ?? {},
    tools: demonstration.env_key === undefined ? null : tools,
    sampling,
  });
  const tokens = [...prompt];
  const spans: TokenizedDemonstration['spans'] = [];
  for (const [index, message] of rest.entries()) {
    if ((index % 2 === 0) !== (message.role === 'assistant')) {
      throw new Error(
        `message ${index + 2} of ${nameOf(demonstration)} may not be a ${message.role} message`,
      );
    }
    if (message.role === 'assistant') {
      const start = tokens.length;
      const written = writtenTurn(coder.format, demonstration, index + 1, tools ?? []);
      tokens.push(...(await turnTokens(coder, written)));
      spans.push({ start, end: tokens.length });
    } else {
      const text = message.role === 'tool' ? observationOf(message.content, sampling) : message.content;
      tokens.push(...(await observationTokens(coder, text, tokens.at(-1))));
    }
  }
  // Drop tokens after the last turn: they carry no loss, and an episode's transcript ends there too.
  tokens.length = spans.at(-1)?.end ?? prompt.length;
  return { tokens, prompt_length: prompt.length, spans };
}

/** The observation for a tool result. A demonstration keeps only the result's text, so an error is recognised by the form of that text. */
function observationOf(text: string, sampling: SamplingPlan): string {
  const result = { content: [{ type: 'text' as const, text }], isError: isErrorText(text) };
  return resultObservation(result, sampling.max_output_chars);
}

function isErrorText(text: string): boolean {
  if (/^error:/i.test(text)) return true;
  if (!text.startsWith('{')) return false;
  try {
    const value = parseJson(text);
    return isObject(value) && hasWords(value['error']);
  } catch {
    return false;
  }
}

/** A result may have the key `error` without an error: null, false, or an empty object. */
function hasWords(error: unknown): boolean {
  if (typeof error === 'string') return error.trim() !== '';
  if (Array.isArray(error)) return error.some(hasWords);
  if (!isObject(error)) return error === true;
  return Object.values(error).some((part) => hasWords(part) || numberIn(part) !== null);
}

/** Throws an Error if a turn cannot be written in the format. */
export function refuseUnwritable(
  format: ToolFormat,
  demonstration: Demonstration,
  tools: readonly ToolSpec[],
): void {
  for (const [index, { role }] of demonstration.messages.entries())
    if (role === 'assistant') writtenTurn(format, demonstration, index, tools);
}

/** `index`: place of the turn's message. */
function writtenTurn(
  format: ToolFormat,
  demonstration: Demonstration,
  index: number,
  tools: readonly ToolSpec[],
): string {
  try {
    return turnIn(format, demonstration.messages[index]?.content ?? '', tools);
  } catch (error) {
    throw new Error(
      `message ${index + 1} of ${nameOf(demonstration)} cannot be written with the calls of ${format.name}: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

function nameOf({ kind, task_key }: Demonstration): string {
  return task_key === undefined ? `a demonstration of kind "${kind}"` : `the demonstration of ${task_key}`;
}
