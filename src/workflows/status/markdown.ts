// Markdown as the Temporal UI shows it in "User Metadata": a style sheet of its own without padding in tables, no code of ours.

/** Keeps the cells of a row apart; the UI collapses spaces, and has no padding. */
const gap = '\u2003';

/** Rows of one length, the first is the head. Cells may hold Markdown; what comes from outside goes through `plain` before. */
export function markdownTable(rows: readonly (readonly string[])[]): string {
  const [head = [], ...body] = rows;
  const line = (cells: readonly string[]): string =>
    `|${cells.map((cell, index) => ` ${cell}${index < cells.length - 1 ? gap : ''} |`).join('')}`;
  return [line(head), `|${head.map(() => ':--|').join('')}`, ...body.map(line)].join('\n');
}

/** Text of a person, a file or a failure, for a cell or a list: one line, and neither a tag nor a link nor the end of a cell. */
export function plain(text: string): string {
  return text
    .trim()
    .replace(/\s*\n\s*/g, ' · ')
    .replace(/[|<[]/g, '\\$&');
}

/** A cell that is not broken where the pane is narrow. */
export function unbroken(text: string): string {
  return text.replaceAll(' ', '\u00a0');
}
