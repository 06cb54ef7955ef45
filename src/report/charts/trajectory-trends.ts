// Charts of how episodes went during training: one point for each step whose episodes were read.
import { cutOff, premature, type TrajectoryCounts, turnsInAll } from '../transcripts/trajectory-analysis.js';
import { escapeXml } from './svg.js';
import { type ChartSeries, lineChart, smoothedParts, smoothingWidth } from './chart.js';

/** Shares are relative to the step's episodes. */
export interface TrajectoryPoint {
  step: number;
  turns: number;
  repeating: number;
  premature: number;
  cutOff: number;
}

/** `counts`: the counts of one step, which has at least one episode. */
export function trajectoryPoint(step: number, counts: TrajectoryCounts): TrajectoryPoint {
  const { episodes } = counts;
  return {
    step,
    turns: turnsInAll(counts) / episodes,
    repeating: counts.repeating / episodes,
    premature: premature(counts) / episodes,
    cutOff: cutOff(counts) / episodes,
  };
}

const shareText = (value: number): string => `${Number((value * 100).toPrecision(2))} %`;

const trends: {
  title: string;
  of: Exclude<keyof TrajectoryPoint, 'step'>;
  format: (value: number) => string;
}[] = [
  { title: 'Turns per episode', of: 'turns', format: (value) => String(Number(value.toPrecision(3))) },
  { title: 'Episodes with repeated calls', of: 'repeating', format: shareText },
  { title: 'Episodes with a premature done', of: 'premature', format: shareText },
  { title: 'Episodes cut off by a limit', of: 'cutOff', format: shareText },
];

/**
 * Empty if there is nothing to draw. An event that never happened gets no chart. `breaks`: steps at which an environment changed.
 */
export function trajectoryTrends(points: readonly TrajectoryPoint[], breaks: readonly number[]): string {
  if (points.length < 2) return '';
  return trendFigures(
    trends.flatMap(({ title, of, format }) => {
      const values = points.map((point) => ({ x: point.step, y: point[of] }));
      return values.some(({ y }) => y > 0) ? [{ title, points: values, format }] : [];
    }),
    breaks,
  );
}

interface TrendFigure {
  title: string;
  /** Not empty. */
  points: ChartSeries['points'];
  format: (value: number) => string;
}

/** Empty if there are no figures. */
export function trendFigures(figures: readonly TrendFigure[], breaks: readonly number[] = []): string {
  if (figures.length === 0) return '';
  // A row of three would leave the last chart alone.
  const columns = figures.length > 3 && figures.length % 3 === 1 ? (figures.length % 2 === 0 ? 2 : 4) : 3;
  return `<div class="trends columns-${columns}">${figures.map((one) => trendFigure(one, breaks)).join('\n')}</div>`;
}

/** Draws the figure's line and, if there are enough points, a smoothed one. */
function trendFigure({ title, points, format }: TrendFigure, breaks: readonly number[]): string {
  const most = points.reduce((max, { y }) => Math.max(max, y), -Infinity);
  const width = smoothingWidth(points.length);
  const series: ChartSeries[] = [{ name: title, style: width > 1 ? 'raw' : 'smooth', draw: 'line', points }];
  if (width > 1)
    series.push({
      name: 'smoothed',
      style: 'smooth',
      draw: 'line',
      points: smoothedParts(points, width, breaks),
    });
  const chart = lineChart({
    description: `${title}: ${format(points[0]?.y ?? 0)} first, ${format(points.at(-1)?.y ?? 0)} last, ${format(most)} at most`,
    size: { width: 320, height: 140 },
    yRange: [0, most > 0 ? most * 1.05 : 1],
    yFormat: format,
    series,
    bands: [],
    breaks,
    legend: false,
  });
  return `<figure><figcaption>${escapeXml(title)}</figcaption>${chart}</figure>`;
}
