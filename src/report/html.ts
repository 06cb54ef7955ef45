// Writes the HTML of all parts of the report. Text from a record always goes through `escapeHtml`.
import { escapeXml } from './charts/svg.js';

export { escapeXml as escapeHtml };

export interface Column<Row> {
  title: string;
  /** Returns HTML, already escaped. */
  cell: (row: Row) => string;
  /** Figures are right-aligned, so that their digits are in columns. */
  figure?: boolean;
}

/**
 * On a narrow page, a row with more columns than this becomes a block of lines, each with its column's title. Otherwise columns would be
 * cut off.
 */
const columnsThatFit = 3;
/** Titles in each cell make the page longer, so a table with more rows than this scrolls sideways instead. */
const rowsStacked = 60;

export function table<Row>(rows: readonly Row[], columns: readonly Column<Row>[], caption?: string): string {
  const stacked = columns.length > columnsThatFit && rows.length <= rowsStacked;
  const attribute = (column: Column<Row>): string => (column.figure ? ' class="figure"' : '');
  const title = (column: Column<Row>): string =>
    stacked && column.title !== '' ? ` data-title="${escapeXml(column.title)}"` : '';
  const head = columns.map((column) => `<th scope="col"${attribute(column)}>${escapeXml(column.title)}</th>`);
  const body = rows.map(
    (row) =>
      `<tr>${columns.map((column) => `<td${attribute(column)}${title(column)}>${column.cell(row)}</td>`).join('')}</tr>`,
  );
  return (
    `<div class="scroll${stacked ? ' stacked' : ''}"><table>${caption === undefined ? '' : `<caption>${escapeXml(caption)}</caption>`}` +
    `<thead><tr>${head.join('')}</tr></thead><tbody>${body.join('\n')}</tbody></table></div>`
  );
}

/** A paragraph of the notes that are not empty; they are HTML. */
export function quietNotes(notes: readonly string[]): string {
  const words = notes.filter((note) => note !== '').join(' ');
  return words === '' ? '' : `<p class="quiet">${words}</p>`;
}
