// Finds where the JSON objects and lists within a text end.
import { endOfString } from '../../base/json.js';

/**
 * Remembers each opening that it has passed. A model that goes astray repeats `{` thousands of times: the text is then read once, and not once
 * for each of them.
 */
export class JsonEnds {
  /** Index behind what begins at an index, or null. */
  readonly #known = new Map<number, number | null>();

  constructor(private readonly text: string) {}

  /** Index behind the object or list that begins at `start`; null if it does not end. */
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
