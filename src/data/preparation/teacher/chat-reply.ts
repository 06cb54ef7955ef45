// Reads the answer of an OpenAI-compatible endpoint as one text, with its tool calls as a policy would write them.
import { z } from 'zod';
import { withoutKnownSecrets } from '../../../base/known-secrets.js';
import { isObject, numberIn, parseJson, writeJson } from '../../../base/json.js';
import { errorText } from '../../../environments/tool-results.js';
import { callsInJson } from '../../../episode/tool-formats/json-call.js';

export interface ChatReply {
  text: string;
  tokens: { prompt: number; completion: number };
}

// OpenAI sends the arguments as JSON text, other servers the object itself.
const called = z.object({ name: z.string(), arguments: z.unknown() });
const part = z.object({ type: z.string(), text: z.string().nullish() });
const message = z.object({
  content: z.union([z.string(), z.array(part)]).nullish(),
  tool_calls: z.array(z.object({ function: called })).nullish(),
  function_call: called.nullish(),
});
const tokenCount = z.preprocess((given) => numberIn(given) ?? given, z.int().min(0).nullish());
const reply = z.object({
  choices: z.array(z.object({ message })).min(1),
  // Gemini leaves out the count of an empty answer.
  usage: z
    .object({ prompt_tokens: tokenCount, completion_tokens: tokenCount, total_tokens: tokenCount })
    .nullish(),
});

/** What is wrong with an answer, and what to do if all answers are like it. */
export interface BadReply {
  problem: string;
  fix: string;
}

export function readReply(text: string): ChatReply | BadReply {
  const fix = 'give the address up to /v1';
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    return { problem: 'answers with something that is not JSON', fix };
  }
  const parsed = reply.safeParse(value);
  if (!parsed.success) return otherReply(value, text);
  const { choices, usage } = parsed.data;
  const prompt = usage?.prompt_tokens ?? null;
  const all = usage?.total_tokens ?? null;
  const completion = usage?.completion_tokens ?? (prompt === null || all === null ? null : all - prompt);
  if (prompt === null || completion === null || completion < 0)
    return { problem: 'does not count tokens, so no budget can be kept', fix: 'use another endpoint' };
  const [first] = choices as [(typeof choices)[number]];
  return {
    text: turnOf(first.message),
    tokens: { prompt, completion },
  };
}

/** Some gateways answer with an error and the status 200. */
function otherReply(value: unknown, text: string): BadReply {
  const words = isObject(value) ? errorText(value.error) : null;
  const shown = withoutKnownSecrets(words ?? text).slice(0, 200);
  return words === null
    ? { problem: `does not answer as a chat endpoint: ${shown}`, fix: 'give the address up to /v1' }
    : { problem: `answers with an error: ${shown}`, fix: 'see what the endpoint says' };
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

/** The call as a policy would write it. Arguments that are valid JSON are not changed. */
function callText({ name, arguments: given }: z.output<typeof called>): string {
  const written = typeof given === 'string' ? given.trim() : writeJson(given ?? {});
  const isNone = written === '' || written === 'null';
  const json = isNone ? '{}' : isObject(parsed(written)) ? written : writeJson(written);
  return `<tool_call>{"name": ${writeJson(name)}, "arguments": ${json}}</tool_call>`;
}

function parsed(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return null;
  }
}

const fence = '```';

/** Puts a call that is a code block, or the whole answer, into tags; removes a code block around the whole answer. */
function withoutFences(text: string): string {
  // A call within the reasoning is no call.
  const from = Math.max(0, text.lastIndexOf('</think>'));
  const [thought, said] = [text.slice(0, from), text.slice(from)];
  // Every second part is within a code block.
  const parts = said.split(fence);
  const at = parts.findIndex((part, index) => index % 2 === 1 && blockText(part) !== null);
  const inner = (at < 0 || at + 1 === parts.length ? null : blockText(parts[at])) ?? '';
  if (!said.includes('<tool_call>')) {
    if (isCall(inner)) {
      const [before, after] = [parts.slice(0, at), parts.slice(at + 1)].map((some) => some.join(fence));
      return `${thought}${before}<tool_call>${inner}</tool_call>${after}`;
    }
    const whole = said.replace('</think>', '').trim();
    if (isCall(whole)) return `${text.slice(0, text.lastIndexOf(whole))}<tool_call>${whole}</tool_call>`;
  }
  const [before = '', , after = ''] = parts;
  const isAround = parts.length === 3 && inner !== '' && /^(?:<\/think>)?\s*$/.test(before);
  if (!isAround || !['', '<done>'].includes(after.trim())) return text;
  const closing = before.startsWith('</think>') ? '</think>\n' : '';
  return `${thought}${closing}${`${inner} ${after.trim()}`.trim()}`;
}

/** The content of a code block, without its first line, which may name a language; null if there is no such line. */
function blockText(part = ''): string | null {
  const [header] = /^[\w-]*[ \t]*\r?\n/.exec(part) ?? [];
  return header === undefined ? null : part.slice(header.length).trim();
}

const hasArguments = /"(?:arguments|parameters|params|args|input|kwargs)"\s*:/;

/** A call without tags must have arguments, because an answer such as `{"name": "Ada"}` is no call. */
function isCall(text: string): boolean {
  return hasArguments.test(text) && callsInJson(text).some((read) => 'call' in read);
}
