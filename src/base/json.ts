// JSON whose numbers stay as they were written: a server's 1915883588174806058 is an id, and 1.0 is not 1 to every server. Values that pass
// through (arguments, results, solutions) are read and written here; our own records are plain JSON.
import { isLosslessNumber, LosslessNumber, parse, stringify } from 'lossless-json';

/** Strings and numbers of a JSON text. */
export const jsonTokens = /"[^"\\]*(?:\\[^][^"\\]*)*"|-?\d[\d.eE+-]*/g;

/**
 * Reads JSON text. A number that JavaScript would write in another way becomes a `LosslessNumber`; all other values are as `JSON.parse` reads
 * them. Throws a SyntaxError.
 */
export function parseJson(text: string): unknown {
  const written: readonly string[] = text.match(jsonTokens) ?? [];
  if (written.every((token) => token.startsWith('"') || isFaithful(token))) return JSON.parse(text);
  if (written.includes('"__proto__"')) throw new SyntaxError('a key is "__proto__"');
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
