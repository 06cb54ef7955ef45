// What all parts of the report are written with. Whatever comes from a record goes through `escapeHtml`.
export function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

export interface Column<Row> {
  title: string;
  /** Already HTML. */
  cell: (row: Row) => string;
  /** Figures are right-aligned, so that their digits stand under each other. */
  figure?: boolean;
}

export function table<Row>(rows: readonly Row[], columns: readonly Column<Row>[], caption?: string): string {
  const attribute = (column: Column<Row>): string => (column.figure ? ' class="figure"' : '');
  const head = columns.map(
    (column) => `<th scope="col"${attribute(column)}>${escapeHtml(column.title)}</th>`,
  );
  const body = rows.map(
    (row) =>
      `<tr>${columns.map((column) => `<td${attribute(column)}>${column.cell(row)}</td>`).join('')}</tr>`,
  );
  return (
    `<div class="scroll"><table>${caption === undefined ? '' : `<caption>${escapeHtml(caption)}</caption>`}` +
    `<thead><tr>${head.join('')}</tr></thead><tbody>${body.join('\n')}</tbody></table></div>`
  );
}
