// JSON whose numbers stay as they were written: a server's 1915883588174806058 is an id, and 1.0 is not 1 to every server. Values that pass
// through (arguments, results, solutions) are read and written here; our own records are plain JSON.
import { isLosslessNumber, LosslessNumber, parse, stringify } from 'lossless-json';

/** Deeper JSON is no data, and would overflow the stack of whatever writes it. */
const mostDepth = 500;

/**
 * Reads JSON text. A number that JavaScript would write in another way becomes a `LosslessNumber`; all other values are as `JSON.parse` reads
 * them. Throws a SyntaxError, also for JSON that is nested more than 500 deep.
 */
export function parseJson(text: string): unknown {
  const between = stretchesOf(text).filter((stretch) => !isString(stretch));
  if (depthOf(between) > mostDepth) throw new SyntaxError(`it is nested more than ${mostDepth} deep`);
  if (between.every((stretch) => (stretch.match(numbers) ?? []).every(isFaithful))) return JSON.parse(text);
  return parse(text, null, {
    parseNumber: (token) => (isFaithful(token) ? Number(token) : new LosslessNumber(token)),
    onDuplicateKey: ({ newValue }) => newValue,
  });
}

/** A key that an object in the JSON text has twice, with different values: readers disagree which one counts. Null if there is none. */
export function repeatedKey(text: string): string | null {
  let repeated: string | null = null;
  parse(text, null, {
    onDuplicateKey: ({ key, newValue }) => {
      repeated ??= key;
      return newValue;
    },
  });
  return repeated;
}

/** Writes JSON, each `LosslessNumber` as it was read. `space`: as for `JSON.stringify`. */
export function writeJson(value: unknown, space?: number): string {
  return stringify(value, null, space) ?? 'null';
}

/** The value as a JavaScript number, rounded if necessary; null if the value is no number. */
export function numberIn(value: unknown): number | null {
  if (typeof value === 'number') return value;
  return isLosslessNumber(value) ? Number(value.value) : null;
}

/** True for a JSON object; false for a list and for a `LosslessNumber`. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isLosslessNumber(value);
}

/** True if `JSON.stringify` would write the same digits. */
export function isFaithful(token: string): boolean {
  return String(Number(token)) === token;
}

export function replaceNumbers(text: string, replace: (written: string) => string): string {
  return replaceOutsideStrings(text, numbers, replace);
}

/** The JSON text with the pattern's matches outside strings replaced. */
function replaceOutsideStrings(text: string, pattern: RegExp, replace: (found: string) => string): string {
  return stretchesOf(text)
    .map((stretch) => (isString(stretch) ? stretch : stretch.replace(pattern, replace)))
    .join('');
}

const numbers = /-?\d[\d.eE+-]*/g;
const isString = (stretch: string): boolean => stretch.startsWith('"');

/** A JSON text, divided into its strings and the texts between them. */
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

/** The largest number of lists and objects that are open at once. */
function depthOf(stretches: readonly string[]): number {
  let [depth, deepest] = [0, 0];
  for (const stretch of stretches)
    for (const bracket of stretch.match(/[[\]{}]/g) ?? []) {
      depth += bracket === '{' || bracket === '[' ? 1 : -1;
      deepest = Math.max(deepest, depth);
    }
  return deepest;
}

/** Index after the string that begins at `quote`; the text's length if the string does not end. */
export function endOfString(text: string, quote: number): number {
  for (let at = text.indexOf('"', quote + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = 0;
    while (text[at - 1 - escapes] === '\\') escapes += 1;
    if (escapes % 2 === 0) return at + 1;
  }
  return text.length;
}

/** The schema in `root` at a JSON pointer such as `#/$defs/Address`; undefined if there is none. */
export function referredSchema(root: unknown, reference: string): unknown {
  if (!reference.startsWith('#')) return undefined;
  let place = root;
  for (const part of reference.slice(1).split('/').slice(1)) {
    const key = decodedPart(part).replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(place)) place = place[Number(key)] as unknown;
    else if (isObject(place) && Object.hasOwn(place, key)) place = place[key];
    else return undefined;
  }
  return place;
}

/** A server may write a `%` that encodes nothing. */
export function decodedPart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const noNumbers = /NaN|-?Infinity/g;

/** Reads JSON as `parseJson` does. NaN and infinite numbers become their names, as text. Throws `SyntaxError`. */
export function parseServerJson(text: string): unknown {
  try {
    return parseJson(text);
  } catch (error) {
    const readable = replaceOutsideStrings(text, noNumbers, (name) => `"${name}"`);
    if (readable === text) throw error;
    return parseJson(readable);
  }
}
