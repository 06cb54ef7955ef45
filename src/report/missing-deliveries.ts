// What trackers and channels have not been told of the run, as its follower has filed it.
import type { Trouble } from '../store/runs/notices.js';
import { escapeHtml, table } from './html.js';

export interface UntoldSink {
  sink: string;
  trouble: Trouble;
}

/** Null where everybody has all of it. */
export function untoldTable(untold: readonly UntoldSink[]): string | null {
  if (untold.length === 0) return null;
  return table(untold, [
    { title: 'who', cell: ({ sink }) => `<strong>${escapeHtml(sink)}</strong>` },
    { title: 'lacks', cell: ({ trouble }) => escapeHtml(trouble.what) },
    { title: 'since', cell: ({ trouble }) => `${trouble.since.slice(0, 16).replace('T', ' ')} UTC` },
    { title: 'why', cell: ({ trouble }) => escapeHtml(trouble.reason) },
  ]);
}
