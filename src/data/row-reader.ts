// Rows of a task file that comes in pieces: one object a line, an array, or `{"tasks": […]}`. No more of the file than a row is held, so
// that hundreds of megabytes can be read in little memory.
import { parseJson } from '../base/json.js';

export interface Row {
  /** Where it stands, for problems: `line 3`, or `task 3` of an array. */
  place: string;
  value: unknown;
}

/** Characters read to find `"tasks": [`. A file that begins with an object and lacks it there is read as lines. */
const headLimit = 1 << 16;

export class RowReader {
  private form: 'unknown' | 'lines' | 'array' | 'over' = 'unknown';
  /** The array is the member `tasks` of an object. */
  private isMember = false;
  /** Text that was not read yet. */
  private rest = '';
  /** Lines or elements of the array so far. */
  private count = 0;
  private scan: ElementScan = newScan();

  /** `problems`: receives what cannot be read, when its place comes. */
  constructor(private readonly problems: string[]) {}

  *push(piece: string): Generator<Row> {
    this.rest += piece;
    if (this.form === 'unknown') this.findForm(false);
    if (this.form === 'lines') yield* this.lines();
    if (this.form === 'array') yield* this.elements();
  }

  /** Must be called once, after the last piece. */
  *end(): Generator<Row> {
    if (this.form === 'unknown') this.findForm(true);
    if (this.form === 'lines') {
      yield* this.lines();
      const hasLineBreak = this.rest === '';
      if (!hasLineBreak) yield* this.line(this.rest, true);
    }
    if (this.form === 'array') yield* this.elements();
    // TypeScript does not know that `elements` may have changed `form` at the array's end.
    const form = this.form as 'array' | 'over';
    if (form === 'array')
      this.problems.push(`task ${this.count + 1}: the file seems cut off: its array does not end here`);
    else if (form === 'over' && !this.endsWell())
      this.problems.push(
        `after task ${this.count}: there is text after the array of tasks; a file must contain only one array`,
      );
  }

  /** True if nothing follows the array but further members of the object around it. */
  private endsWell(): boolean {
    return this.isMember ? parsed(`{"tasks":[]${this.rest}`) !== unreadable : this.rest.trim() === '';
  }

  private findForm(isWhole: boolean): void {
    const begin = this.rest.search(/\S/);
    if (begin < 0) {
      // Blank lines before the first row count as lines.
      if (isWhole) this.form = 'lines';
      return;
    }
    if (this.rest[begin] === '[') return this.beginArray(begin + 1);
    const at = this.rest[begin] === '{' ? tasksArrayAt(this.rest, begin) : 'none';
    if (typeof at === 'number') {
      this.isMember = true;
      this.beginArray(at);
    } else if (at === 'none' || isWhole || this.rest.length > headLimit) this.form = 'lines';
  }

  private beginArray(at: number): void {
    this.form = 'array';
    this.rest = this.rest.slice(at);
  }

  private *lines(): Generator<Row> {
    let from = 0;
    for (let to = this.rest.indexOf('\n'); to >= 0; to = this.rest.indexOf('\n', from)) {
      yield* this.line(this.rest.slice(from, to), false);
      from = to + 1;
    }
    this.rest = this.rest.slice(from);
  }

  private *line(text: string, isLast: boolean): Generator<Row> {
    const place = `line ${++this.count}`;
    if (text.trim() === '') return;
    const value = parsed(text);
    if (value !== unreadable) yield { place, value };
    else {
      const cutOff = isLast ? ' (the file seems cut off: its last line does not end with a line break)' : '';
      this.problems.push(`${place}: not JSON${cutOff}`);
    }
  }

  private *elements(): Generator<Row> {
    const { rest, scan } = this;
    let from = 0;
    for (;;) {
      const end = scanElement(rest, scan);
      if (end === null) break;
      const text = rest.slice(from, end);
      const closes = rest[end] !== ',';
      // An empty array, or a comma before its end, has no element here.
      if (text.trim() !== '' || !closes) {
        const place = `task ${++this.count}`;
        const value = parsed(text);
        if (value === unreadable) this.problems.push(`${place}: not JSON`);
        else yield { place, value };
      }
      from = end + 1;
      Object.assign(scan, newScan(), { at: from });
      if (closes) {
        if (rest[end] === '}') this.problems.push(`task ${this.count}: not JSON`);
        this.form = 'over';
        this.rest = rest.slice(from);
        return;
      }
    }
    this.rest = rest.slice(from);
    scan.at -= from;
  }
}

/** All rows of a text. Adds what cannot be read to `problems`, when its place comes. */
export function* rowsOf(text: string, problems: string[]): Generator<Row> {
  const reader = new RowReader(problems);
  yield* reader.push(text);
  yield* reader.end();
}

const unreadable = Symbol('unreadable');

function parsed(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return unreadable;
  }
}

interface ElementScan {
  /** The next character to look at. */
  at: number;
  depth: number;
  isInText: boolean;
  isEscaped: boolean;
}

const newScan = (): ElementScan => ({ at: 0, depth: 0, isInText: false, isEscaped: false });

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const isOpening = (code: number): boolean => code === 0x7b || code === 0x5b;
const isClosing = (code: number): boolean => code === 0x7d || code === 0x5d;

/** Index of the comma or bracket after the element; null if it is not in `text` yet, and the scan goes on with what follows. */
function scanElement(text: string, scan: ElementScan): number | null {
  for (; scan.at < text.length; scan.at++) {
    const code = text.charCodeAt(scan.at);
    if (scan.isInText) {
      if (scan.isEscaped) scan.isEscaped = false;
      else if (code === backslash) scan.isEscaped = true;
      else if (code === quote) scan.isInText = false;
    } else if (code === quote) scan.isInText = true;
    else if (isOpening(code)) scan.depth += 1;
    else if (scan.depth === 0 && (code === comma || isClosing(code))) return scan.at;
    else if (isClosing(code)) scan.depth -= 1;
  }
  return null;
}

/**
 * `text` has an object that begins at `begin`. Returns where the elements of its member `tasks` begin; `none` if the object ends without
 * such an array; `more` if neither is in the text yet.
 */
function tasksArrayAt(text: string, begin: number): number | 'none' | 'more' {
  const member = { ...newScan(), at: begin + 1 };
  for (;;) {
    const from = member.at;
    const begins = /^\s*"tasks"\s*:\s*\[/.exec(text.slice(from, from + 1000));
    if (begins) return from + begins[0].length;
    const end = scanElement(text, member);
    if (end === null) return 'more';
    if (text[end] !== ',') return 'none';
    member.at = end + 1;
  }
}
