// Reads the answer of an OpenAI-compatible endpoint as one text, with its tool calls as a policy would write them.
import { z } from 'zod';

export interface ChatReply {
  text: string;
  tokens: { prompt: number; completion: number };
}

const called = z.object({
  name: z.string(),
  // OpenAI sends JSON as text, other servers the object itself.
  arguments: z.union([z.string(), z.record(z.string(), z.unknown())]).nullish(),
});
const part = z.object({ type: z.string(), text: z.string().nullish() });
const message = z.object({
  content: z.union([z.string(), z.array(part)]).nullish(),
  tool_calls: z.array(z.object({ function: called })).nullish(),
  function_call: called.nullish(),
});
const reply = z.object({
  choices: z.array(z.object({ message })).min(1),
  usage: z.object({ prompt_tokens: z.int().min(0), completion_tokens: z.int().min(0) }).nullish(),
});

/** What is wrong with an answer, and what to do if each answer is such. */
export interface BadReply {
  problem: string;
  fix: string;
}

export function readReply(text: string): ChatReply | BadReply {
  const fix = 'give the address up to /v1';
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { problem: 'answers with something that is not JSON', fix };
  }
  const parsed = reply.safeParse(value);
  if (!parsed.success) return { problem: 'does not answer as a chat endpoint', fix };
  const { choices, usage } = parsed.data;
  if (!usage)
    return { problem: 'does not count tokens, so no budget can be kept', fix: 'use another endpoint' };
  const [first] = choices as [(typeof choices)[number]];
  return {
    text: turnOf(first.message),
    tokens: { prompt: usage.prompt_tokens, completion: usage.completion_tokens },
  };
}

function turnOf({ content, tool_calls, function_call }: z.output<typeof message>): string {
  const said = typeof content === 'string' ? content : (content ?? []).flatMap(textOfPart).join('');
  const calls = [
    ...(tool_calls ?? []).map((one) => one.function),
    ...(function_call ? [function_call] : []),
  ].map(callText);
  if (calls.length > 0) return [said.trim(), ...calls].filter((line) => line !== '').join('\n');
  return withoutFences(said);
}

/** A part for reasoning is not part of the answer. */
const textOfPart = ({ type, text }: z.output<typeof part>): string[] =>
  (type === 'text' || type === 'output_text') && typeof text === 'string' ? [text] : [];

/** Arguments that are JSON stay as they were written. */
function callText({ name, arguments: given }: z.output<typeof called>): string {
  const written = typeof given === 'string' ? given.trim() : JSON.stringify(given ?? {});
  const json = written === '' ? '{}' : isObject(written) ? written : JSON.stringify(written);
  return `<tool_call>{"name": ${JSON.stringify(name)}, "arguments": ${json}}</tool_call>`;
}

const fence = /```[\w-]*[ \t]*\n([^]*?)\n?[ \t]*```/;

/** A call in a code block, or as the whole answer, is in its tags then; a code block around the whole answer is taken off. */
function withoutFences(text: string): string {
  // What is only thought of is no call.
  const from = Math.max(0, text.lastIndexOf('</think>'));
  const [thought, said] = [text.slice(0, from), text.slice(from)];
  const tagged = /<tool_call>\s*```[\w-]*[ \t]*\n([^]*?)\n?[ \t]*```\s*<\/tool_call>/;
  if (tagged.test(said))
    return thought + said.replace(tagged, (_, inner: string) => `<tool_call>${inner}</tool_call>`);
  if (said.includes('<tool_call>')) return unwrapped(text, thought, said);
  const [block, inner = ''] = fence.exec(said) ?? [];
  if (block !== undefined && isCall(inner))
    return thought + said.replace(block, () => `<tool_call>${inner.trim()}</tool_call>`);
  const whole = said.replace('</think>', '').trim();
  if (isCall(whole)) return `${text.slice(0, text.lastIndexOf(whole))}<tool_call>${whole}</tool_call>`;
  return unwrapped(text, thought, said);
}

function unwrapped(text: string, thought: string, said: string): string {
  const [, inner, after = ''] =
    /^(?:<\/think>)?\s*```[\w-]*[ \t]*\n([^]*?)\n?[ \t]*```\s*(<done>)?\s*$/.exec(said) ?? [];
  if (inner === undefined || inner.includes('```')) return text;
  const closing = said.startsWith('</think>') ? '</think>\n' : '';
  return `${thought}${closing}${`${inner} ${after}`.trim()}`;
}

/** True for `{"name": …, "arguments": {…}}` and nothing else. */
function isCall(text: string): boolean {
  if (!isObject(text)) return false;
  const value = JSON.parse(text) as Record<string, unknown>;
  const given = value.arguments ?? value.parameters;
  return typeof value.name === 'string' && typeof given === 'object' && given !== null;
}

function isObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
