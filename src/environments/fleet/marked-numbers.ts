// The library for MCP reads and writes JSON with plain numbers. Numbers that would change there travel through it as marked text.
import { randomUUID } from 'node:crypto';
import { isLosslessNumber, LosslessNumber } from 'lossless-json';
import { isFaithful, replaceNumbers } from '../../base/json.js';

const mark = `number-${randomUUID()}:`;
const markedText = new RegExp(`"${mark}([^"]*)"`, 'g');

/** The value with marked text in place of each `LosslessNumber`. */
export function withMarks(value: unknown): unknown {
  if (isLosslessNumber(value)) return mark + value.value;
  return mapped(value, withMarks);
}

/** The value with a `LosslessNumber` in place of each marked text. */
export function withoutMarks(value: unknown): unknown {
  if (typeof value === 'string' && value.startsWith(mark))
    return new LosslessNumber(value.slice(mark.length));
  return mapped(value, withoutMarks);
}

/** JSON text with the numbers in place of their marked texts: what is sent. */
export function unmarkedJson(json: string): string {
  return json.replace(markedText, '$1');
}

/** JSON text with marked texts in place of the numbers that would change: what was received. */
export function markedJson(json: string): string {
  return replaceNumbers(json, (token) => (isFaithful(token) ? token : `"${mark}${token}"`));
}

/** The chunks of a stream of server-sent events, with marked numbers. A line is passed on when it is whole. */
export async function* markedEvents(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let rest = '';
  const lineOf = (line: string): string =>
    line.startsWith('data:') ? `data:${markedJson(line.slice(5))}` : line;
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    if (lines.length > 0) yield encoder.encode(`${lines.map(lineOf).join('\n')}\n`);
  }
  if (rest !== '') yield encoder.encode(lineOf(rest));
}

function mapped(value: unknown, map: (value: unknown) => unknown): unknown {
  if (Array.isArray(value)) return value.map(map);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, map(one)]));
}
