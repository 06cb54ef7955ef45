// JSON whose numbers stay as they were written: a server's 1915883588174806058 is an id, and 1.0 is not 1 to every server. Values that pass
// through (arguments, results, solutions) are read and written here; our own records are plain JSON.
import { isLosslessNumber, LosslessNumber, parse, stringify } from 'lossless-json';

/**
 * Reads JSON text. A number that JavaScript would write in another way becomes a `LosslessNumber`; all other values are as `JSON.parse` reads
 * them. Throws a SyntaxError.
 */
export function parseJson(text: string): unknown {
  let isExact = true;
  replaceNumbers(text, (token) => {
    isExact &&= isFaithful(token);
    return token;
  });
  if (isExact) return JSON.parse(text);
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

/** JavaScript writes the number as it is written here. */
export function isFaithful(token: string): boolean {
  return String(Number(token)) === token;
}

/** The JSON text with its numbers replaced; what is within strings stays. */
export function replaceNumbers(text: string, replace: (written: string) => string): string {
  const parts: string[] = [];
  for (let at = 0; at < text.length;) {
    const quote = text.indexOf('"', at);
    const begin = quote < 0 ? text.length : quote;
    const end = quote < 0 ? text.length : endOfString(text, quote);
    parts.push(text.slice(at, begin).replace(/-?\d[\d.eE+-]*/g, replace), text.slice(begin, end));
    at = end;
  }
  return parts.join('');
}

/** Index behind the string that begins at `quote`. */
function endOfString(text: string, quote: number): number {
  for (let at = text.indexOf('"', quote + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = 0;
    while (text[at - 1 - escapes] === '\\') escapes += 1;
    if (escapes % 2 === 0) return at + 1;
  }
  return text.length;
}
