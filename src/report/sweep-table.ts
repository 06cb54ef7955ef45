// Sweeps' results for a run's states: a line for each sweep and suite, with a link to its whole comparison.
import { escapeHtml, table } from './html.js';

/** One sweep on one suite: the newest of the run's states that it evaluated, against its reference. All in words. */
export interface SweepLine {
  sweep: string;
  suite: string;
  at: string;
  baseline: string;
  newest: string;
  /** `71.0 % → 83.5 %` */
  passRates: string;
  /** With its 95 % interval. */
  change: string;
  tasks: string;
  alarm: { kind: 'regressed' | 'suspected' | 'none'; text: string };
  /** Key of its page in the store; null: it has none yet. */
  page: string | null;
}

export interface SweepsOfRun {
  lines: SweepLine[];
  /** Sweeps that cannot be read, in words. */
  unreadable: string[];
  /** From the report's page to the store's root, `../../../`; null if the page is not in the store. */
  toRoot: string | null;
}

const marks = { regressed: '▼ ', suspected: '? ', none: '' };

/** Null if no sweep has evaluated the run. */
export function sweepTable({ lines, unreadable, toRoot }: SweepsOfRun): string | null {
  if (lines.length === 0 && unreadable.length === 0) return null;
  const body = table(lines, [
    { title: 'sweep', cell: (row) => `<span class="wrap">${escapeHtml(row.sweep)}</span>` },
    { title: 'suite', cell: (row) => escapeHtml(row.suite) },
    {
      title: 'baseline → newest',
      cell: (row) => `<span class="wrap">${escapeHtml(`${row.baseline} → ${row.newest}`)}</span>`,
    },
    { title: 'pass@1', cell: (row) => escapeHtml(row.passRates), figure: true },
    { title: 'change [95 %]', cell: (row) => escapeHtml(row.change), figure: true },
    { title: 'tasks', cell: (row) => escapeHtml(row.tasks) },
    {
      title: 'regression',
      cell: ({ alarm }) =>
        `<span class="status ${alarm.kind === 'none' ? '' : alarm.kind === 'regressed' ? 'fail' : 'unclear'}">${marks[alarm.kind]}${escapeHtml(alarm.text)}</span>`,
    },
    ...(toRoot === null
      ? []
      : [{ title: 'comparison', cell: (row: SweepLine) => pageText(row.page, toRoot) }]),
  ]);
  const items = unreadable.map((text) => `<li>${escapeHtml(text)}</li>`).join('');
  return (
    (lines.length === 0 ? '' : `<div class="dense">${body}</div>`) +
    '<p class="quiet">The newest of this run’s states in each sweep against what that sweep compares with, paired by task; changes in points.' +
    (toRoot === null && lines.some(({ page }) => page !== null)
      ? ' The whole comparison of a sweep as a page: <code>longhaul sweeps report NAME</code>, with the name behind the “/”.'
      : '') +
    '</p>' +
    (items === '' ? '' : `<ul class="quiet">${items}</ul>`)
  );
}

function pageText(page: string | null, toRoot: string): string {
  if (page === null) return '<span class="quiet">not written yet</span>';
  const address = page.split('/').map(encodeURIComponent).join('/');
  return `<a href="${escapeHtml(toRoot + address)}">in full</a>`;
}
