// Writes the HTML of all parts of the report. Text from a record always goes through `escapeHtml`.
import { escapeXml } from './charts/svg.js';

export { escapeXml as escapeHtml };

/** `cell` returns HTML, already escaped. Figures are right-aligned, so that their digits are in columns. */
export type Column<Row> = readonly [title: string, cell: (row: Row) => string, kind?: 'figure'];

/**
 * On a narrow page, a row with more columns than this becomes a block of lines, each with its column's title. Otherwise columns would be
 * cut off.
 */
const columnsThatFit = 3;
/** Titles in each cell make the page longer, so a table with more rows than this scrolls sideways instead. */
const rowsStacked = 60;

/** Without the columns that are null. */
export function table<Row>(
  rows: readonly Row[],
  wanted: readonly (Column<Row> | null)[],
  caption?: string,
): string {
  const columns = wanted.filter((column) => column !== null);
  const stacked = columns.length > columnsThatFit && rows.length <= rowsStacked;
  const attribute = ([, , kind]: Column<Row>): string => (kind ? ' class="figure"' : '');
  const title = ([name]: Column<Row>): string =>
    stacked && name !== '' ? ` data-title="${escapeXml(name)}"` : '';
  const head = columns.map((column) => `<th scope="col"${attribute(column)}>${escapeXml(column[0])}</th>`);
  const body = rows.map(
    (row) =>
      `<tr>${columns.map((column) => `<td${attribute(column)}${title(column)}>${column[1](row)}</td>`).join('')}</tr>`,
  );
  return (
    `<div class="scroll${stacked ? ' stacked' : ''}"><table>${caption === undefined ? '' : `<caption>${escapeXml(caption)}</caption>`}` +
    `<thead><tr>${head.join('')}</tr></thead><tbody>${body.join('\n')}</tbody></table></div>`
  );
}

interface Page {
  title: string;
  /** Its content security policy. */
  policy: string;
  style: string;
  body: readonly string[];
  script?: string | null;
}

export function page({ title, policy, style, body, script = null }: Page): string {
  return [
    '<!doctype html>',
    '<html lang="en"><head><meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<title>${escapeXml(title)}</title>`,
    `<style>${style}</style></head><body><main>`,
    ...body,
    '</main>',
    ...(script === null ? [] : [`<script>${script}</script>`]),
    '</body></html>',
  ].join('\n');
}

export function section(title: string, body: string): string {
  return `<section><h2>${title}</h2>\n${body}\n</section>`;
}

/** A figure at the top of a page, with its name. */
export function tile(name: string, value: string, style = ''): string {
  return `<div class="tile ${style}"><div class="value">${value}</div><div class="quiet">${name}</div></div>`;
}

/** A paragraph of the notes that are not empty; they are HTML. */
export function quietNotes(notes: readonly string[]): string {
  const words = notes.filter((note) => note !== '').join(' ');
  return words === '' ? '' : `<p class="quiet">${words}</p>`;
}
