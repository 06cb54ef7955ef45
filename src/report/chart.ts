// Line charts as inline SVG: they read on a light and a dark page, and print.
export interface ChartSeries {
  name: string;
  /** CSS class that carries the colour: `reward`, `evaluation`, `loss`. */
  style: string;
  points: { x: number; y: number }[];
  /** Dots with their value, for few points; else a line alone. */
  marked: boolean;
}

export interface ChartOptions {
  title: string;
  xLabel: string;
  yRange: [number, number];
  yFormat: (value: number) => string;
  series: ChartSeries[];
  /** Vertical lines, e.g. where a phase begins. */
  marks: { x: number; label: string }[];
}

const width = 860;
const height = 300;
const margin = { left: 52, right: 16, top: 28, bottom: 40 };

export function lineChart(options: ChartOptions): string {
  const all = options.series.flatMap((series) => series.points);
  if (all.length === 0) return `<p class="quiet">${escapeHtml(options.title)}: no figures yet.</p>`;
  const xMin = Math.min(...all.map((point) => point.x), ...options.marks.map((mark) => mark.x));
  const xMax = Math.max(...all.map((point) => point.x), xMin + 1);
  const [yMin, yMax] = options.yRange;
  const x = (value: number): number =>
    margin.left + ((value - xMin) / (xMax - xMin)) * (width - margin.left - margin.right);
  const y = (value: number): number =>
    height - margin.bottom - ((value - yMin) / (yMax - yMin)) * (height - margin.top - margin.bottom);
  const parts = [
    `<svg class="chart" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(options.title)}">`,
    ...ticks(yMin, yMax, 5).map(
      (value) =>
        `<line class="grid" x1="${margin.left}" x2="${width - margin.right}" y1="${round(y(value))}" y2="${round(y(value))}"/>` +
        `<text class="axis" x="${margin.left - 8}" y="${round(y(value) + 4)}" text-anchor="end">${options.yFormat(value)}</text>`,
    ),
    ...ticks(xMin, xMax, 8).map(
      (value) =>
        `<text class="axis" x="${round(x(value))}" y="${height - margin.bottom + 18}" text-anchor="middle">${Math.round(value)}</text>`,
    ),
    `<text class="axis" x="${(width + margin.left) / 2}" y="${height - 6}" text-anchor="middle">${escapeHtml(options.xLabel)}</text>`,
    ...options.marks.map(
      (mark) =>
        `<line class="mark" x1="${round(x(mark.x))}" x2="${round(x(mark.x))}" y1="${margin.top}" y2="${height - margin.bottom}"/>` +
        `<text class="axis" x="${round(x(mark.x) + 4)}" y="${margin.top + 10}">${escapeHtml(mark.label)}</text>`,
    ),
    ...options.series.map((series) => drawSeries(series, x, y, options.yFormat)),
    legend(options.series),
    '</svg>',
  ];
  return parts.join('\n');
}

function drawSeries(
  series: ChartSeries,
  x: (value: number) => number,
  y: (value: number) => number,
  format: (value: number) => string,
): string {
  const path = series.points.map((point) => `${round(x(point.x))},${round(y(point.y))}`).join(' ');
  const line = `<polyline class="line ${series.style}" points="${path}"/>`;
  if (!series.marked) return line;
  const dots = series.points.map(
    (point) =>
      `<circle class="dot ${series.style}" cx="${round(x(point.x))}" cy="${round(y(point.y))}" r="3.5">` +
      `<title>${escapeHtml(series.name)} ${format(point.y)} at step ${point.x}</title></circle>`,
  );
  return line + dots.join('');
}

function legend(series: ChartSeries[]): string {
  let left = margin.left;
  return series
    .map((one) => {
      const item =
        `<line class="line ${one.style}" x1="${left}" x2="${left + 18}" y1="12" y2="12"/>` +
        `<text class="axis" x="${left + 24}" y="16">${escapeHtml(one.name)}</text>`;
      left += 40 + one.name.length * 7;
      return item;
    })
    .join('');
}

/** At most `count` + 1 round values from `low` to `high`. */
export function ticks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  const values: number[] = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step)
    values.push(value);
  return values;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

export function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
