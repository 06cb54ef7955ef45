// Finds where the JSON objects and lists within a text end.
import { endOfString } from '../../base/json.js';

/**
 * Remembers the result for each opening bracket that it has passed. If a degenerate model repeats `{` thousands of times, the text is still read
 * only once, and not once for each bracket.
 */
export class JsonEnds {
  /** For each index at which an object or list begins, the index after its end, or null. */
  readonly #known = new Map<number, number | null>();

  constructor(private readonly text: string) {}

  /** Index after the object or list that begins at `start`; null if it does not end. */
  behind(start: number): number | null {
    const open: number[] = [];
    let at = start;
    while (at < this.text.length) {
      const character = this.text[at];
      const known = this.#known.get(at);
      // JSON has a backslash in strings only. Without this, a text could be read once for each of its quotes.
      if (known === null || character === '\\') break;
      if (known !== undefined) at = known;
      else if (character === '"') at = endOfString(this.text, at);
      else {
        at += 1;
        if (character === '{' || character === '[') open.push(at - 1);
        else if (character === '}' || character === ']') this.#known.set(open.pop() ?? start, at);
      }
      if (open.length === 0) return at;
    }
    for (const opening of [start, ...open]) this.#known.set(opening, null);
    return null;
  }
}
