// JSON whose numbers stay as they were written: a server's 1915883588174806058 is an id, and 1.0 is not 1 to every server. Values that pass
// through (arguments, results, solutions) are read and written here; our own records are plain JSON.
import { isLosslessNumber, LosslessNumber, parse, stringify } from 'lossless-json';

/**
 * Reads JSON text. A number that JavaScript would write in another way becomes a `LosslessNumber`; all other values are as `JSON.parse` reads
 * them. Throws a SyntaxError.
 */
export function parseJson(text: string): unknown {
  if (
    stretchesOf(text).every(
      (stretch) => isString(stretch) || (stretch.match(numbers) ?? []).every(isFaithful),
    )
  )
    return JSON.parse(text);
  if (text.includes('"__proto__"')) throw new SyntaxError('a key is "__proto__"');
  try {
    return parse(text, null, {
      parseNumber: (token) => (isFaithful(token) ? Number(token) : new LosslessNumber(token)),
      onDuplicateKey: ({ newValue }) => newValue,
    });
  } catch (error) {
    if (error instanceof RangeError) throw new SyntaxError('it is nested too deeply');
    throw error;
  }
}

/** Writes JSON, each `LosslessNumber` as it was read. `space`: as for `JSON.stringify`. */
export function writeJson(value: unknown, space?: number): string {
  return stringify(value, null, space) ?? 'null';
}

/** A value's number, as near as JavaScript has it; null if the value is no number. */
export function numberIn(value: unknown): number | null {
  if (typeof value === 'number') return value;
  return isLosslessNumber(value) ? Number(value.value) : null;
}

/** True for an object of JSON: not for a list, nor for a number that is kept as it was written. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isLosslessNumber(value);
}

/** JavaScript writes the number as it is written here. */
export function isFaithful(token: string): boolean {
  return String(Number(token)) === token;
}

/** The JSON text with its numbers replaced. */
export function replaceNumbers(text: string, replace: (written: string) => string): string {
  return replaceOutsideStrings(text, numbers, replace);
}

/** The text with the pattern's matches replaced; what is within strings of JSON stays. */
export function replaceOutsideStrings(
  text: string,
  pattern: RegExp,
  replace: (found: string) => string,
): string {
  return stretchesOf(text)
    .map((stretch) => (isString(stretch) ? stretch : stretch.replace(pattern, replace)))
    .join('');
}

const numbers = /-?\d[\d.eE+-]*/g;
const isString = (stretch: string): boolean => stretch.startsWith('"');

/** The strings of a JSON text, and what is between them, in order. */
function stretchesOf(text: string): string[] {
  const stretches: string[] = [];
  for (let at = 0; at < text.length;) {
    const quote = text.indexOf('"', at);
    if (quote < 0) return [...stretches, text.slice(at)];
    const end = endOfString(text, quote);
    if (quote > at) stretches.push(text.slice(at, quote));
    stretches.push(text.slice(quote, end));
    at = end;
  }
  return stretches;
}

/** Index behind the string that begins at `quote`; the text's length if it does not end. */
export function endOfString(text: string, quote: number): number {
  for (let at = text.indexOf('"', quote + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = 0;
    while (text[at - 1 - escapes] === '\\') escapes += 1;
    if (escapes % 2 === 0) return at + 1;
  }
  return text.length;
}
