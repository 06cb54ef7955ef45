// Draws an interval as a bar around 0, readable without colour: the dot is full if the interval excludes 0, and hollow if not.
import { element, line, linearScale } from '../report/charts/svg.js';
import { points } from '../report/format.js';
import type { Difference } from './comparison.js';

const width = 120;
const height = 18;
const margin = 8;

/** `reach`: the largest change, to each side, that the bars of a table can show. */
export function intervalBar({ estimate, low, high }: Difference, reach: number): string {
  const scale = linearScale([-reach, reach], [margin, width - margin]);
  const x = (value: number): number => scale(Math.min(reach, Math.max(-reach, value)));
  const y = height / 2;
  const upright = (value: number, half: number, kind: string): string =>
    line({ x: x(value), y: y - half }, { x: x(value), y: y + half }, { class: kind });
  return element(
    'svg',
    {
      ...{ class: 'interval-bar', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img' },
      'aria-label': `${points(estimate)} points, 95 % interval ${points(low)} to ${points(high)}`,
    },
    upright(0, y, 'zero'),
    line({ x: x(low), y }, { x: x(high), y }, { class: 'reach' }),
    upright(low, 4, 'reach'),
    upright(high, 4, 'reach'),
    element('circle', { class: low > 0 || high < 0 ? 'full' : 'hollow', cx: x(estimate), cy: y, r: 3.2 }),
  );
}

/** The largest change in any of the intervals, rounded up to a simple share; at least 0.1. */
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
.interval-bar .full { fill: var(--ink); } .interval-bar .hollow { fill: var(--page); }
`;
