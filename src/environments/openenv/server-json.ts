// JSON as Python's `json` writes it: a server in Python may write NaN and Infinity, which no other reader of JSON accepts.
import { parseJson, replaceOutsideStrings } from '../../base/json.js';

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
