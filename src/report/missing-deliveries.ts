// The parts of a run that trackers and channels have not received. The run's follower reports them in its notices.
import type { Trouble } from '../store/runs/notices.js';
import { escapeHtml, table } from './html.js';

export interface LackingSink {
  sink: string;
  trouble: Trouble;
}

/** Null if every tracker and channel has received everything. */
export function missingDeliveriesTable(lacking: readonly LackingSink[]): string | null {
  if (lacking.length === 0) return null;
  return table(lacking, [
    { title: 'who', cell: ({ sink }) => `<strong>${escapeHtml(sink)}</strong>` },
    { title: 'lacks', cell: ({ trouble }) => escapeHtml(trouble.what) },
    { title: 'since', cell: ({ trouble }) => `${trouble.since.slice(0, 16).replace('T', ' ')} UTC` },
    { title: 'why', cell: ({ trouble }) => escapeHtml(trouble.reason) },
  ]);
}
