// Converts tool lists and results of OpenEnv and MCP servers into one form: the case of their keys depends on the server's libraries.
import { sha256Hex } from '../base/sha256.js';
import type { JsonSchemaObject, ToolSpec } from '../spec/records/task.js';
import type { ContentBlock, ToolResult } from './environment.js';

type Json = Record<string, unknown>;

/** The tool by which Fleet's tasks that ask for an answer take it, as `answer`. It ends the episode. */
export const answerToolName = 'submit_final_answer';

/** Reads `input_schema` or `inputSchema`; a description may be null. */
export function readTools(tools: unknown): ToolSpec[] {
  if (!Array.isArray(tools)) return [];
  return tools.filter(isObject).map((entry) => {
    const schema = entry.input_schema ?? entry.inputSchema;
    return {
      name: String(entry.name),
      description: typeof entry.description === 'string' ? entry.description : '',
      input_schema: {
        ...(isObject(schema) ? schema : {}),
        type: 'object',
        properties: isObject(schema) && isObject(schema.properties) ? schema.properties : {},
      } as JsonSchemaObject,
    };
  });
}

/** Sorted by name, because a server may list tools in any order. */
export function inOrder(tools: readonly ToolSpec[]): ToolSpec[] {
  return [...tools].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

type ToolAnswer =
  { kind: 'result'; result: ToolResult } | { kind: 'failed'; reason: string; message: string };

/**
 * Reads an observation of `call_tool`. Servers guess an error's class from its text. Only `timeout` and `transport_error` count, because no
 * error of a tool gets these classes.
 */
export function readToolAnswer(observation: Json): ToolAnswer {
  const { error, result } = observation;
  // Such a flag says that the result is an error.
  if (error === true && result !== undefined && result !== null)
    return { kind: 'result', result: { ...readToolResult(result), isError: true } };
  const words = isObject(error) ? (errorText(error) ?? noWords) : errorText(error);
  if (words !== null) {
    const message = modelText(words);
    const type = isObject(error) ? error.error_type : undefined;
    if (type === 'timeout') return { kind: 'failed', reason: 'timeout', message };
    if (type === 'transport_error') return { kind: 'failed', reason: 'call', message };
    return { kind: 'result', result: textResult(message, true) };
  }
  // The server has actions of its own: the whole observation is the result, except the metadata, which the model must not see.
  if (!('result' in observation)) {
    const { metadata: _, ...shown } = observation;
    return { kind: 'result', result: textResult(compact(shown)) };
  }
  return { kind: 'result', result: readToolResult(result) };
}

const noWords = 'the tool failed';

/** Keys under which servers put the words of an error, or a list of what is wrong. */
const wordKeys = ['message', 'error', 'detail', 'details', 'errors'];

/** The words of an error: text, an object with a message, or a list of problems; null if there is no error. */
export function errorText(error: unknown): string | null {
  if (error === true) return noWords;
  if (typeof error === 'string') return error.trim() === '' ? null : error;
  if (Array.isArray(error)) {
    const lines = error.flatMap((problem) => errorText(problem) ?? []);
    return lines.length === 0 ? null : lines.join('\n');
  }
  if (!isObject(error)) return null;
  if (typeof error.msg === 'string') return problemText(error);
  const lists = Array.isArray(error.data) ? [error.data] : [];
  const parts = [...wordKeys.map((key) => error[key]), ...lists].flatMap((part) => errorText(part) ?? []);
  if (parts.length > 0) return [...new Set(parts)].join('\n');
  const { error_type: _, ...rest } = error;
  const isEmpty = Object.values(rest).every((value) => value === null || value === '' || value === undefined);
  return isEmpty ? null : compact(rest);
}

/** Pydantic's, without its links and the whole input, which cost tokens. */
export function problemText({ loc, msg }: Readonly<Record<string, unknown>>): string {
  const place = Array.isArray(loc)
    ? loc.filter((part) => part !== 'body' && part !== 'action').join('.')
    : '';
  return `${place === '' ? '' : `${place}: `}${textOf(msg, 'is not valid')}`;
}

/** A whole observation as the model sees it, which does not see the metadata: its only text, or JSON. */
export function shownText(observation: unknown): string {
  if (!isObject(observation)) return compact(observation);
  const { metadata: _, ...shown } = observation;
  const values = Object.values(shown);
  return values.length === 1 && typeof values[0] === 'string' ? values[0] : compact(shown);
}

/** Reads the result of a tool of any MCP version. */
export function readToolResult(result: unknown): ToolResult {
  if (!isObject(result)) return textResult(typeof result === 'string' ? result : compact(result));
  const { content } = result;
  const isError = (result.is_error ?? result.isError) === true;
  const structured = result.structured_content ?? result.structuredContent;
  if (Array.isArray(content) && content.length > 0) {
    return { content: content.map(readBlock), isError };
  }
  if (structured !== undefined && structured !== null) return textResult(compact(structured), isError);
  return textResult(Array.isArray(content) ? '' : compact(result), isError);
}

function readBlock(block: unknown): ContentBlock {
  if (!isObject(block)) return textBlock(compact(block));
  const { type, text, data } = block;
  if (type === 'text' && typeof text === 'string') return textBlock(text);
  if (type !== 'image' || typeof data !== 'string') return textBlock(compact(block));
  const bytes = Buffer.from(data, 'base64');
  const mime = textOf(block.mimeType ?? block.mime_type, '');
  return { type, mime, sha256: sha256Hex(bytes), size: bytes.length };
}

function textBlock(text: string): ContentBlock {
  return { type: 'text', text };
}

export function textResult(text: string, isError = false): ToolResult {
  return { content: [textBlock(text)], isError };
}

/** Removes pydantic's links to its manual, which say nothing about the task and cost tokens. */
function modelText(message: string): string {
  return message
    .split('\n')
    .filter((line) => !/^\s*For further information visit https?:\/\//.test(line))
    .join('\n');
}

function compact(value: unknown): string {
  return JSON.stringify(value) ?? '';
}

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** `value` if it is a string, otherwise `fallback`. */
export function textOf(value: unknown, fallback: string): string {
  return typeof value === 'string' ? value : fallback;
}

export function isReward(reward: unknown): reward is number | boolean {
  return Number.isFinite(reward) || typeof reward === 'boolean';
}

/** The mean and the variance over a group must be finite numbers too. */
export const maxReward = 1e100;
