// JSON as Python's `json` writes it: a server in Python may write NaN and Infinity, which no other reader of JSON accepts.
import { parseJson } from '../../base/json.js';

const textOrNoNumber = /"[^"\\]*(?:\\[^][^"\\]*)*"|NaN|-?Infinity/g;

/** Reads JSON as `parseJson` does. NaN and infinite numbers become their names, as text. Throws `SyntaxError`. */
export function parseServerJson(text: string): unknown {
  try {
    return parseJson(text);
  } catch (error) {
    if (!/NaN|Infinity/.test(text)) throw error;
    return parseJson(text.replace(textOrNoNumber, (part) => (part.startsWith('"') ? part : `"${part}"`)));
  }
}
