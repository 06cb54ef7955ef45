// Small charts side by side. Each shows one figure by step.
import { escapeXml } from './svg.js';
import { lineChart, smoothedParts, smoothingWidth, type ChartSeries } from './chart.js';

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
