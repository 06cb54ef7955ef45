// What all parts of the report are written with. Whatever comes from a record goes through `escapeHtml`.
export function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

export const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;

/** A change in percentage points, with its sign. */
export const points = (change: number): string =>
  `${change < 0 ? '−' : '+'}${(Math.abs(change) * 100).toFixed(1)}`;

export const whole = (count: number): string => Math.round(count).toLocaleString('en');

/** `8 min 19 s`; two units at most. */
export function timeSpan(seconds: number): string {
  const total = Math.max(0, Math.round(seconds));
  if (total < 60) return `${total} s`;
  if (total < 3600) return `${Math.floor(total / 60)} min ${total % 60} s`;
  const minutes = Math.round(total / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(total / 3600);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
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
