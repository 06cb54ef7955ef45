// Markdown for "User Metadata" in the Temporal UI, which gives table cells no padding and runs none of our code.

/** Separates the cells of a row: an em space, because the UI collapses spaces. */
const gap = '\u2003';

/** A table; all rows have the length of the first, the head. Cells may hold Markdown, so text from outside must go through `plain`. */
export function markdownTable(rows: readonly (readonly string[])[]): string {
  const [head = [], ...body] = rows;
  const line = (cells: readonly string[]): string =>
    `|${cells.map((cell, index) => ` ${cell}${index < cells.length - 1 ? gap : ''} |`).join('')}`;
  return [line(head), `|${head.map(() => ':--|').join('')}`, ...body.map(line)].join('\n');
}

/** Makes text of a person, a file or a failure safe for a cell or a list: one line, without tags, links or cell ends. */
export function plain(text: string): string {
  return text
    .trim()
    .replace(/\s*\n\s*/g, ' · ')
    .replace(/[|<[]/g, '\\$&');
}

/** A name and what is shown for it, in parts, the most important first. Empty parts are left out. */
export type Fact = readonly [name: string, ...parts: string[]];

/** A longer word would widen the table beyond the pane of a window that is 1,280 pixels wide. */
const wordCharacters = 32;

/** Facts as a table of two columns that no window cuts off. Facts with a longer word follow as a list, because long words break there. */
export function factTable(facts: readonly Fact[]): string {
  const fits = (fact: Fact): boolean => fact.slice(1).every((part) => longestWord(part) <= wordCharacters);
  const rows = facts.filter(fits).map(([name, ...parts]) => [unbrokenIfShort(name), joined(parts)]);
  const others = facts.filter((fact) => !fits(fact)).map(([name, ...parts]) => `- ${name}: ${joined(parts)}`);
  return [rows.length === 0 ? '' : markdownTable(rows), others.join('\n')]
    .filter((text) => text !== '')
    .join('\n\n');
}

function joined(parts: readonly string[]): string {
  return parts
    .filter((part) => part !== '')
    .map(unbrokenIfShort)
    .join(' · ');
}

/** Browsers break a line at spaces, and after a hyphen before a letter, but not after a slash. */
function longestWord(text: string): number {
  return Math.max(...text.split(/\s|(?<=-)(?=[a-z])/i).map((word) => word.length));
}

/** A part of at most this length is never broken into two lines; it fits in every pane. */
const shortCharacters = 28;

/** A short text with non-breaking spaces; a longer one keeps its spaces, so that it can be broken. */
function unbrokenIfShort(text: string): string {
  return text.length <= shortCharacters ? text.replaceAll(' ', '\u00a0') : text;
}

/** `28 Nov 10:43 UTC`, without hyphens and with non-breaking spaces, so that browsers do not break it. */
export function minuteText(time: Date | number): string {
  const text = new Date(time).toUTCString();
  return `${text.slice(5, 11)} ${text.slice(17, 22)} UTC`.replaceAll(' ', '\u00a0');
}
