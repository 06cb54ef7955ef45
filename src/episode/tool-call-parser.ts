// Finds what the text of a turn asks for: a tool call, the end, or nothing. Tags and key names are read as in SkyRL.
import type { ToolCall } from '../spec/records/task.js';

/** Name of this parser in plans. If the parser changes, its id must change. */
export const toolParserId = 'skyrl/1';

type ParsedTurn =
  | { kind: 'call'; call: ToolCall }
  /** There is a tag, but its content is not a valid call. `problem` is written for the model. */
  | { kind: 'malformed'; problem: string }
  | { kind: 'none' };

const tags = ['tool_call', 'function_call'] as const;

/** Uses the first match of each tag, in the order of `tags`; the closing tag may be missing. */
export function parseToolCall(text: string): ParsedTurn {
  let problem: string | null = null;
  for (const tag of tags) {
    const body = bodyOf(text, tag);
    if (body === null) continue;
    const parsed = parseBody(body);
    if (typeof parsed !== 'string') return { kind: 'call', call: parsed };
    problem ??= parsed;
  }
  return problem === null ? { kind: 'none' } : { kind: 'malformed', problem };
}

/** True if the text says anywhere that the task is finished. */
export function saysDone(text: string): boolean {
  return /<done>|\[done\]/i.test(text);
}

/** The text of a turn without tool-call and end markers; the verifier gets it as the final answer. */
export function finalAnswerOf(text: string): string {
  return text
    .replace(/<(tool_call|function_call)>[\s\S]*?(<\/\1>|$)/g, '')
    .replace(/<done>|\[done\]/gi, '')
    .replace(/<\|[^|]*\|>/g, '')
    .trim();
}

function bodyOf(text: string, tag: string): string | null {
  const open = text.indexOf(`<${tag}>`);
  if (open < 0) return null;
  const body = text.slice(open + tag.length + 2);
  const close = body.indexOf(`</${tag}>`);
  if (close >= 0) return body.slice(0, close);
  // The closing tag may be missing because it was the stop string; the call then ends before the next special token.
  const special = body.indexOf('<|');
  return special < 0 ? body : body.slice(0, special);
}

function parseBody(body: string): ToolCall | string {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return 'the tool call is not valid JSON';
  }
  if (!isObject(value)) return 'the tool call must be a JSON object';
  const name = value['name'] ?? value['tool'];
  if (typeof name !== 'string' || name === '') return 'the tool call has no "name"';
  const given = value['arguments'] ?? value['params'] ?? {};
  if (!isObject(given)) return '"arguments" of the tool call must be a JSON object';
  return { name, arguments: given };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
