// Converts tool lists and results of OpenEnv and MCP servers into one form: the case of their keys depends on the server's libraries.
import { isDeepStrictEqual } from 'node:util';
import { isObject, numberIn, writeJson } from '../base/json.js';
import { sha256Hex } from '../base/sha256.js';
import type { ToolSpec } from '../spec/records/task.js';
import type { ContentBlock, ToolResult } from './environment.js';
import { parametersIn } from './tool-schema.js';

type Json = Record<string, unknown>;

/** The tool that takes the answer (`answer`) in Fleet's tasks that ask for one. It ends the episode. */
export const answerToolName = 'submit_final_answer';

/**
 * Reads `input_schema` or `inputSchema`, also in OpenAI's form; a description may be null. Leaves out tools without a name, and later tools of
 * the same name; `leftOutTools` says which.
 */
export function readTools(tools: unknown): ToolSpec[] {
  const named = new Map<string, ToolSpec>();
  for (const entry of toolEntries(tools)) {
    const { name, description } = entry;
    if (typeof name !== 'string' || name === '' || named.has(name)) continue;
    const input_schema = parametersIn(entry.input_schema ?? entry.inputSchema ?? entry.parameters);
    named.set(name, { name, description: typeof description === 'string' ? description : '', input_schema });
  }
  return [...named.values()];
}

/** Limits the number of pages, because a server may repeat a cursor, or give new ones for ever. */
const maxToolPages = 1000;

/** Reads a list page by page. `ask` returns the page of the parameters, `listed`: how many tools the pages before it had. */
export async function readToolPages(
  ask: (params: Json, listed: number) => Promise<Json>,
): Promise<ToolSpec[]> {
  const listed: unknown[] = [];
  const cursors = new Set<unknown>();
  for (let params: Json = {}; ;) {
    const { tools, nextCursor, next_cursor } = await ask(params, listed.length);
    if (Array.isArray(tools)) listed.push(...(tools as unknown[]));
    const cursor = nextCursor ?? next_cursor ?? '';
    if (cursor === '' || cursors.has(cursor) || cursors.size >= maxToolPages) return readTools(listed);
    cursors.add(cursor);
    params = { cursor };
  }
}

/** The tools that `readTools` leaves out of a list, in words; empty if there are none. */
export function leftOutTools(tools: unknown): string[] {
  const counts = new Map<string, number>();
  for (const { name } of toolEntries(tools)) {
    const known = typeof name === 'string' ? name : '';
    counts.set(known, (counts.get(known) ?? 0) + 1);
  }
  const { length } = Array.isArray(tools) ? tools : [];
  const nameless = length - [...counts].reduce((sum, [name, count]) => sum + (name === '' ? 0 : count), 0);
  const words = nameless === 0 ? [] : [`${nameless} ${nameless === 1 ? 'has' : 'have'} no name`];
  const repeated = [...counts].filter(([name, count]) => name !== '' && count > 1);
  return [...words, ...repeated.map(([name, count]) => `${name} is listed ${count} times`)];
}

/** OpenAI's form wraps a tool in `function`. */
function toolEntries(tools: unknown): Json[] {
  if (!Array.isArray(tools)) return [];
  return tools.filter(isObject).map((entry) => (isObject(entry.function) ? entry.function : entry));
}

type ToolAnswer =
  { kind: 'result'; result: ToolResult } | { kind: 'failed'; reason: 'timeout' | 'call'; message: string };

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

/** A problem in Pydantic's form, without its links and the whole input, which would cost tokens. */
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
  const hasBlocks = Array.isArray(content) && content.length > 0;
  const isShown = !hasBlocks && structured !== undefined && structured !== null;
  const shown: ToolResult = hasBlocks
    ? { content: readBlocks(content, structured), isError }
    : textResult(isShown ? compact(structured) : Array.isArray(content) ? '' : compact(result), isError);
  const isSilent = shown.content.every((block) => block.type === 'text' && block.text.trim() === '');
  return isError && isSilent ? textResult(noWords, true) : shown;
}

/** The blocks, followed by the structured content if no block shows it. */
function readBlocks(blocks: readonly unknown[], structured: unknown): ContentBlock[] {
  const shown = blocks.map(readBlock);
  if (!isObject(structured) || Object.keys(structured).length === 0 || isShownBy(blocks, structured))
    return shown;
  return [
    ...shown.filter((block) => block.type !== 'text' || block.text.trim() !== ''),
    textBlock(compact(structured)),
  ];
}

/** Servers should repeat structured content as JSON text, and most do. */
function isShownBy(blocks: readonly unknown[], structured: Json): boolean {
  const texts = blocks.map((block) => (isObject(block) && block.type === 'text' ? block.text : null));
  // FastMCP wraps a value that is no object in `result`, and shows a list as one block for each element.
  const isWrapped = Object.keys(structured).length === 1 && structured.result !== undefined;
  return [structured, ...(isWrapped ? [structured.result] : [])].some(
    (value) =>
      texts.some((text) => isTextOf(text, value)) ||
      (Array.isArray(value) &&
        value.length === texts.length &&
        value.every((element, index) => isTextOf(texts[index], element))),
  );
}

function isTextOf(text: unknown, value: unknown): boolean {
  if (typeof text !== 'string' || text === value) return typeof text === 'string';
  try {
    return isDeepStrictEqual(JSON.parse(text), JSON.parse(compact(value)));
  } catch {
    return false;
  }
}

/** What the model sees of a block: its text, or a line that describes it. */
function readBlock(block: unknown): ContentBlock {
  if (!isObject(block)) return textBlock(typeof block === 'string' ? block : compact(block));
  const { type, text, data } = block;
  if (type === 'text' && typeof text === 'string') return textBlock(text);
  const mime = textOf(block.mimeType ?? block.mime_type, '');
  if (type === 'image' && typeof data === 'string') {
    const bytes = Buffer.from(data, 'base64');
    return { type, mime, sha256: sha256Hex(bytes), size: bytes.length };
  }
  if (type === 'audio' && typeof data === 'string') return textBlock(described('audio', mime, data));
  if (type === 'resource_link' && typeof block.uri === 'string') return textBlock(linkLine(block.uri, block));
  if (type === 'resource' && isObject(block.resource)) return textBlock(resourceText(block.resource));
  return textBlock(compact(block));
}

/** For example `[link: report.pdf, file:///report.pdf, application/pdf, 1200 bytes: the yearly report]`. */
function linkLine(uri: string, { name, title, description, size, ...rest }: Json): string {
  const label = textOf(title, textOf(name, ''));
  const facts = [
    ...(label === '' || label === uri ? [] : [label]),
    uri,
    ...[textOf(rest.mimeType ?? rest.mime_type, '')].filter(Boolean),
    ...(numberIn(size) === null ? [] : [`${numberIn(size)} bytes`]),
  ];
  const words = textOf(description, '').replace(/\s+/g, ' ').trim();
  return `[link: ${facts.join(', ')}${words === '' ? '' : `: ${words}`}]`;
}

function resourceText(resource: Json): string {
  const { uri, text, blob } = resource;
  if (typeof text === 'string') return text;
  const mime = textOf(resource.mimeType ?? resource.mime_type, '');
  if (typeof blob === 'string') return described(`file ${textOf(uri, '')}`.trim(), mime, blob);
  return typeof uri === 'string' ? linkLine(uri, resource) : compact(resource);
}

/** A line that describes bytes that the model cannot read. */
function described(what: string, mime: string, base64: string): string {
  const { length } = Buffer.from(base64, 'base64');
  return `[${[what, mime].filter(Boolean).join(' ')}, ${length} bytes]`;
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
  return writeJson(value);
}

/** `value` if it is a string, otherwise `fallback`. */
export function textOf(value: unknown, fallback: string): string {
  return typeof value === 'string' ? value : fallback;
}

export function isReward(reward: unknown): reward is number | boolean {
  return typeof reward === 'boolean' || Number.isFinite(numberIn(reward));
}
