// Line charts as inline SVG. They are readable on light and dark pages, at any width, and on paper.
import {
  type Box,
  element,
  escapeXml,
  line,
  linearScale,
  type Place,
  polyline,
  type Scale,
  stepAxis,
  text,
  ticks,
  yAxis,
} from './svg.js';
import { clearest } from './chart-label.js';

export interface ChartSeries {
  name: string;
  /** CSS class that sets the colour: `raw`, `smooth`, `interval`, `final`. */
  style: string;
  points: { x: number; y: number }[];
  /**
   * `line`: a line without dots; `dots`: a line with dots, which show their value on hover; `labels`: dots with their value beside them, no
   * line.
   */
  draw: 'line' | 'dots' | 'labels';
  /** The line begins at this step. Before it, a line would show values that were never measured. */
  joinedFrom?: number;
}

export interface ChartBand {
  from: number;
  to: number;
  label: string;
}

interface ChartOptions {
  /** Text alternative of the chart. */
  description: string;
  size: { width: number; height: number };
  /** If absent, the range covers all points and bands. Charts that are compared share one range. */
  xRange?: [number, number];
  yRange: [number, number];
  yFormat: (value: number) => string;
  series: ChartSeries[];
  /** Steps at which an environment changed; lines are interrupted there. */
  breaks?: readonly number[];
  /** Named spans of steps. Every second one is shaded. */
  bands: ChartBand[];
  legend: boolean;
}

export type UnsizedChart = Omit<ChartOptions, 'size' | 'legend'>;

/** The chart in two widths: scaled down to a phone, its text would be too small to read. */
export function atBothWidths(chart: UnsizedChart, heights: { wide: number; narrow: number }): string {
  const [wide, narrow] = [
    { width: 900, height: heights.wide },
    { width: 390, height: heights.narrow },
  ];
  return (
    `<div class="chart-wide">${lineChart({ ...chart, size: wide, legend: true })}</div>` +
    `<div class="chart-narrow">${lineChart({ ...chart, size: narrow, legend: false })}</div>`
  );
}

export function lineChart(options: ChartOptions): string {
  const { series, bands, description, yFormat, breaks = [] } = options;
  const all = series.flatMap(({ points }) => points);
  if (all.length === 0) return '<p class="quiet">No figures yet.</p>';
  const { width, height } = options.size;
  const hasLabels = series.some(({ draw }) => draw === 'labels');
  const plot = { left: 46, right: width - (hasLabels ? 54 : 20), top: 12, bottom: height - 26 };
  const [first, last] = options.xRange ?? [Infinity, -Infinity];
  const xMin = Math.min(first, ...all.map((point) => point.x), ...bands.map((band) => band.from));
  const xMax = Math.max(last, ...all.map((point) => point.x), ...bands.map((band) => band.to), xMin + 1);
  const x = linearScale([xMin, xMax], [plot.left, plot.right]);
  const y = linearScale(options.yRange, [plot.bottom, plot.top]);
  const place = (point: Place): Place => ({ x: x(point.x), y: y(point.y) });
  const lines = series.map((one) => ({
    weight: one.style === 'raw' ? 0.1 : 1,
    points: joined(one).map(place),
  }));
  return [
    options.legend ? legend(series) : '',
    element(
      'svg',
      { class: 'chart', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': description },
      ...bands.map((band, index) => drawBand(band, index, x, plot)),
      yAxis(ticks(...options.yRange, height < 200 ? 3 : 5), y, plot, yFormat),
      stepAxis(xMin, xMax, width / 100, x, plot),
      ...breaks.filter((step) => step > xMin && step <= xMax).map(drawBreak),
      ...series.map((one) => linesOf(one) + dotsOf(one)),
    ),
  ].join('\n');

  function linesOf(one: ChartSeries): string {
    const points = joined(one);
    return parted(points, breaks)
      .map((part) =>
        // A line with only one point would be invisible.
        part.length === 1 && points.length > 1 && one.draw === 'line'
          ? drawDot(one.style, one.draw, place(part[0] as Place))
          : polyline(part.map(place), { class: `line ${one.style}` }),
      )
      .join('');
  }

  /** Between the last step of one environment and the first of another. */
  function drawBreak(step: number): string {
    const at = x(step - 0.5);
    const title = element('title', {}, `an environment changed at step ${step}`);
    return element(
      'line',
      { class: 'break', x1: at, y1: plot.top, x2: at, y2: plot.bottom, 'stroke-dasharray': '4 4' },
      title,
    );
  }

  function dotsOf({ name, style, draw, points }: ChartSeries): string {
    if (draw === 'line') return '';
    return points
      .map((point) => {
        const value = yFormat(point.y);
        const dot = place(point);
        const title = element('title', {}, escapeXml(`${name}: ${value} at step ${point.x}`));
        const drawn = drawDot(style, draw, dot, title);
        if (draw === 'dots') return drawn;
        const label = clearest(dot, value, { ...plot, right: width }, lines);
        return (
          drawn + text(value, label.x, label.y, { class: `value ${style}`, 'text-anchor': label.anchor })
        );
      })
      .join('');
  }
}

function drawBand({ from, to, label }: ChartBand, index: number, x: Scale, { top, bottom }: Box): string {
  const width = x(to) - x(from);
  const shade =
    index % 2 === 0
      ? element('rect', { class: 'band', x: x(from), y: top, width, height: bottom - top })
      : '';
  // Leave out a name that does not fit its band: it would cover the next name.
  const fits = width > label.length * 6.5 + 8;
  return shade + (fits ? text(label, x(from) + 5, top + 14) : '');
}

/** The points that a line goes through. */
function joined({ draw, points, joinedFrom = -Infinity }: ChartSeries): ChartSeries['points'] {
  return draw === 'labels' ? [] : points.filter((point) => point.x >= joinedFrom);
}

function drawDot(style: string, draw: ChartSeries['draw'], { x, y }: Place, title = ''): string {
  return element('circle', { class: `dot ${style}`, cx: x, cy: y, r: draw === 'labels' ? 5 : 3.5 }, title);
}

function legend(series: readonly ChartSeries[]): string {
  const items = series.map(({ name, style, draw }) => {
    const stroke = line({ x: 0, y: 6 }, { x: 18, y: 6 }, { class: `line ${style}` });
    const dot = drawDot(style, draw, { x: 9, y: 6 });
    const mark = { line: stroke, dots: stroke + dot, labels: dot }[draw];
    const drawn = element('svg', { width: 18, height: 12, 'aria-hidden': 'true' }, mark);
    return `<span>${drawn} ${escapeXml(name)}</span>`;
  });
  return `<div class="legend">${items.join('')}</div>`;
}

/** The points before the first of `breaks`, from there to the second, and so on; without empty parts. */
export function parted<Point extends { x: number }>(
  points: readonly Point[],
  breaks: readonly number[],
): Point[][] {
  const edges = [-Infinity, ...breaks, Infinity];
  return edges
    .slice(1)
    .map((to, index) => points.filter(({ x }) => x >= (edges[index] as number) && x < to))
    .filter((part) => part.length > 0);
}

/** Moving mean over a window of `width` points. At both ends the window is cut off. */
export function smoothed(points: { x: number; y: number }[], width: number): { x: number; y: number }[] {
  const half = Math.floor(width / 2);
  return points.map(({ x }, index) => {
    const window = points.slice(Math.max(0, index - half), index + half + 1);
    return { x, y: window.reduce((sum, point) => sum + point.y, 0) / window.length };
  });
}

/** Smooths each part separately, because a mean over two environments describes neither. */
export function smoothedParts(
  points: { x: number; y: number }[],
  width: number,
  breaks: readonly number[],
): { x: number; y: number }[] {
  return parted(points, breaks).flatMap((part) => smoothed(part, width));
}

/** An odd window of about a twentieth of the points, at most 51; 1 if there are too few points to smooth. */
export function smoothingWidth(count: number): number {
  return count < 10 ? 1 : 2 * Math.min(25, Math.max(2, Math.round(count / 40))) + 1;
}
