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

/** A table of three such cells fits the pane of a window that is 1,280 pixels wide. */
const shortCharacters = 24;

/** Text that does not wrap in a narrow pane, unless it is so long that the table would be cut off. */
export function unbrokenIfShort(text: string): string {
  return text.length <= shortCharacters ? text.replaceAll(' ', '\u00a0') : text;
}
