// An interval as a bar around 0. A full dot: the interval leaves out 0; a hollow one: it holds it. So it reads without colour.
import { points } from '../report/format.js';
import { escapeHtml } from '../report/html.js';
import type { Difference } from './comparison.js';

const width = 120;
const height = 18;
const margin = 8;

/** `reach`: the largest change that the bars of a table show, to each side. */
export function intervalBar({ estimate, low, high }: Difference, reach: number): string {
  const x = (value: number): string => {
    const share = (Math.min(reach, Math.max(-reach, value)) / reach + 1) / 2;
    return (margin + share * (width - 2 * margin)).toFixed(1);
  };
  const middle = height / 2;
  const [left, right] = [x(low), x(high)];
  const told = low > 0 || high < 0 ? 'told' : 'untold';
  const label = `${points(estimate)} points, 95 % interval ${points(low)} to ${points(high)}`;
  return (
    `<svg class="interval-bar" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(label)}">` +
    `<line class="zero" x1="${x(0)}" x2="${x(0)}" y1="0" y2="${height}"/>` +
    `<line class="reach" x1="${left}" x2="${right}" y1="${middle}" y2="${middle}"/>` +
    `<line class="reach" x1="${left}" x2="${left}" y1="${middle - 4}" y2="${middle + 4}"/>` +
    `<line class="reach" x1="${right}" x2="${right}" y1="${middle - 4}" y2="${middle + 4}"/>` +
    `<circle class="${told}" cx="${x(estimate)}" cy="${middle}" r="3.2"/></svg>`
  );
}

/** The largest change that any interval holds, as a round share; at least a tenth. */
export function reachOf(differences: readonly (Difference | null | undefined)[]): number {
  const largest = differences.reduce(
    (most, one) => (one ? Math.max(most, Math.abs(one.low), Math.abs(one.high)) : most),
    0.1,
  );
  return Math.min(1, Math.ceil(largest * 10) / 10);
}

export const intervalBarStyle = `
.interval-bar { vertical-align: middle; } .interval-bar .zero { stroke: var(--rule); stroke-width: 1.5; }
.interval-bar .reach { stroke: var(--smooth); stroke-width: 2; } .interval-bar circle { stroke: var(--ink); stroke-width: 1.5; }
.interval-bar .told { fill: var(--ink); } .interval-bar .untold { fill: var(--page); }
`;
