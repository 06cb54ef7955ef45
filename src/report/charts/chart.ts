// Line charts as inline SVG: readable on a light and a dark page, at any width, and on paper.
import { clearest, type Label, type Place } from './chart-label.js';
import { escapeHtml } from '../html.js';

export interface ChartSeries {
  name: string;
  /** CSS class that carries the colour: `raw`, `smooth`, `interval`, `final`. */
  style: string;
  points: { x: number; y: number }[];
  /** `line`: no dots; `dots`: a line with dots that show their value; `labels`: dots with their value, and no line. */
  draw: 'line' | 'dots' | 'labels';
  /** Points left of it have no line to the next: the line would show values that were never measured. */
  joinedFrom?: number;
}

export interface ChartBand {
  from: number;
  to: number;
  label: string;
}

export interface ChartOptions {
  /** Text alternative of the chart. */
  description: string;
  size: { width: number; height: number };
  /** Absent: as the points and the bands need. Charts for comparison share one. */
  xRange?: [number, number];
  yRange: [number, number];
  yFormat: (value: number) => string;
  series: ChartSeries[];
  /** Spans of steps with a name, shaded by turns. */
  bands: ChartBand[];
  legend: boolean;
}

type Scale = (value: number) => number;

export function lineChart(options: ChartOptions): string {
  const all = options.series.flatMap((series) => series.points);
  if (all.length === 0) return '<p class="quiet">No figures yet.</p>';
  const { width, height } = options.size;
  const labels = options.series.some((series) => series.draw === 'labels');
  const margin = { left: 46, right: labels ? 54 : 20, top: 12, bottom: 26 };
  const [first, last] = options.xRange ?? [Infinity, -Infinity];
  const xMin = Math.min(first, ...all.map((point) => point.x), ...options.bands.map((band) => band.from));
  const xMax = Math.max(
    last,
    ...all.map((point) => point.x),
    ...options.bands.map((band) => band.to),
    xMin + 1,
  );
  const [yMin, yMax] = options.yRange;
  const x: Scale = (value) =>
    margin.left + ((value - xMin) / (xMax - xMin)) * (width - margin.left - margin.right);
  const y: Scale = (value) =>
    height - margin.bottom - ((value - yMin) / (yMax - yMin)) * (height - margin.top - margin.bottom);
  const plot = {
    left: margin.left,
    right: width,
    top: margin.top,
    bottom: height - margin.bottom,
  };
  const lines = options.series.map((series) => ({
    weight: series.style === 'raw' ? 0.1 : 1,
    points: joined(series).map((point) => ({ x: x(point.x), y: y(point.y) })),
  }));
  return [
    options.legend ? legend(options.series) : '',
    `<svg class="chart" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(options.description)}">`,
    ...options.bands.map((band, index) => drawBand(band, index, x, margin.top, height - margin.bottom)),
    ...ticks(yMin, yMax, height < 200 ? 3 : 5).map(
      (value) =>
        `<line class="grid" x1="${margin.left}" x2="${width - margin.right}" y1="${round(y(value))}" y2="${round(y(value))}"/>` +
        `<text x="${margin.left - 8}" y="${round(y(value) + 4)}" text-anchor="end">${escapeHtml(options.yFormat(value))}</text>`,
    ),
    ...ticks(xMin, xMax, width / 100)
      .filter((value) => Number.isInteger(value))
      .map(
        (value) =>
          `<text x="${round(x(value))}" y="${height - 8}" text-anchor="middle">${value.toLocaleString('en')}</text>`,
      ),
    ...options.series.map((series) =>
      drawSeries(series, x, y, options.yFormat, (dot, text) => clearest(dot, text, plot, lines)),
    ),
    '</svg>',
  ].join('\n');
}

function drawBand(band: ChartBand, index: number, x: Scale, top: number, bottom: number): string {
  const [left, right] = [x(band.from), x(band.to)];
  const shade =
    index % 2 === 0
      ? `<rect class="band" x="${round(left)}" y="${top}" width="${round(right - left)}" height="${bottom - top}"/>`
      : '';
  // A name that does not fit its band would cover its neighbour's.
  const fits = right - left > band.label.length * 6.5 + 8;
  return (
    shade + (fits ? `<text x="${round(left + 5)}" y="${top + 14}">${escapeHtml(band.label)}</text>` : '')
  );
}

/** The points that a line goes through. */
function joined({ draw, points, joinedFrom = -Infinity }: ChartSeries): ChartSeries['points'] {
  return draw === 'labels' ? [] : points.filter((point) => point.x >= joinedFrom);
}

function drawSeries(
  series: ChartSeries,
  x: Scale,
  y: Scale,
  format: (value: number) => string,
  placeLabel: (dot: Place, text: string) => Label,
): string {
  const path = joined(series)
    .map((point) => `${round(x(point.x))},${round(y(point.y))}`)
    .join(' ');
  const line = path === '' ? '' : `<polyline class="line ${series.style}" points="${path}"/>`;
  if (series.draw === 'line') return line;
  const dots = series.points.map((point) => {
    const place = { x: x(point.x), y: y(point.y) };
    const dot =
      `<circle class="dot ${series.style}" cx="${round(place.x)}" cy="${round(place.y)}" r="${series.draw === 'labels' ? 5 : 3.5}">` +
      `<title>${escapeHtml(series.name)}: ${escapeHtml(format(point.y))} at step ${point.x}</title></circle>`;
    if (series.draw === 'dots') return dot;
    const label = placeLabel(place, format(point.y));
    return (
      `${dot}<text class="value ${series.style}" x="${round(label.x)}" y="${round(label.y)}" ` +
      `text-anchor="${label.anchor}">${escapeHtml(format(point.y))}</text>`
    );
  });
  return line + dots.join('');
}

function legend(series: readonly ChartSeries[]): string {
  const items = series.map((one) => {
    const line = `<line class="line ${one.style}" x1="0" x2="18" y1="6" y2="6"/>`;
    const dot = `<circle class="dot ${one.style}" cx="9" cy="6" r="${one.draw === 'labels' ? 5 : 3.5}"/>`;
    const mark = { line, dots: line + dot, labels: dot }[one.draw];
    return `<span><svg width="18" height="12" aria-hidden="true">${mark}</svg> ${escapeHtml(one.name)}</span>`;
  });
  return `<div class="legend">${items.join('')}</div>`;
}

/** At most `count` + 1 round values from `low` to `high`. */
export function ticks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step =
    [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * (1 - 1e-9)) ?? rough;
  const values: number[] = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++)
    values.push(Number((index * step).toPrecision(12)));
  return values;
}

/** Mean over a window of `width` points around each one; at both ends over the available part. */
export function smoothed(points: { x: number; y: number }[], width: number): { x: number; y: number }[] {
  const half = Math.floor(width / 2);
  return points.map(({ x }, index) => {
    const window = points.slice(Math.max(0, index - half), index + half + 1);
    return { x, y: window.reduce((sum, point) => sum + point.y, 0) / window.length };
  });
}

/** An odd window of about a twentieth of the points; 1 if there are too few to smooth. */
export function smoothingWidth(count: number): number {
  return count < 10 ? 1 : 2 * Math.min(25, Math.max(2, Math.round(count / 40))) + 1;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
