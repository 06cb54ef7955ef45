// Pass rates by step as a picture, for media that show no page: an SVG, and a PNG rendered from it.
import { createRequire } from 'node:module';
import { renderAsync, type ResvgRenderOptions } from '@resvg/resvg-js';

/** One environment, or all of them. */
export interface PassRateLine {
  name: string;
  /** Shares, 0..1; in order of steps. */
  points: { step: number; value: number }[];
}

export interface ChartPicture {
  title: string;
  /** The first one is drawn as the most important; those beyond `mostLines` are left out and counted. */
  lines: PassRateLine[];
}

const width = 800;
const height = 400;
const plot = { left: 62, right: 560, top: 56, bottom: 346 };
const legend = { left: 584, top: 66, row: 37 };
export const mostLines = 8;
const titleCharacters = 60;
const nameCharacters = 22;
/** More would merge into a band. */
const mostDots = 40;

const ink = '#1d1c1d';
const quiet = '#55565a';
const grid = '#e2e2e5';
/** Each at least 4.5 : 1 on white, and distinct for people who see fewer colours; dashes and marks distinguish them without any colour. */
const styles = [
  { colour: '#1d1c1d', dash: '' },
  { colour: '#0063b1', dash: '' },
  { colour: '#b84300', dash: '9 4' },
  { colour: '#00754f', dash: '3 3' },
  { colour: '#a0368c', dash: '12 4 3 4' },
  { colour: '#7a5c00', dash: '6 6' },
  { colour: '#5b4ab5', dash: '2 5' },
  { colour: '#8a1c2b', dash: '14 5' },
];
/** Comes with the packages: a machine may have no font, and searching its fonts takes half a second a picture. */
const { resolve } = createRequire(import.meta.url);
const font: NonNullable<ResvgRenderOptions['font']> = {
  loadSystemFonts: false,
  fontFiles: ['DejaVuSans.ttf', 'DejaVuSans-Bold.ttf'].map((file) => resolve(`dejavu-fonts-ttf/ttf/${file}`)),
  defaultFontFamily: 'DejaVu Sans',
};
const families = 'DejaVu Sans, sans-serif';

/** PNG, 800 × 400; null if there is no point to show. */
export async function drawChart(chart: ChartPicture): Promise<Uint8Array | null> {
  const svg = chartSvg(chart);
  if (svg === null) return null;
  return (await renderAsync(svg, { font, background: '#ffffff', logLevel: 'off' })).asPng();
}

/** Null if there is no point to show. */
export function chartSvg({ title, lines }: ChartPicture): string | null {
  const known = lines
    .map(({ name, points }) => ({
      name,
      points: points.filter(({ step, value }) => Number.isSafeInteger(step) && value >= 0 && value <= 1),
    }))
    .filter(({ points }) => points.length > 0);
  const shown = known.slice(0, mostLines);
  const all = shown.flatMap(({ points }) => points);
  if (all.length === 0) return null;
  const steps = all.map(({ step }) => step);
  const first = steps.reduce((a, b) => Math.min(a, b));
  const last = steps.reduce((a, b) => Math.max(a, b));
  const top = topOf(all.reduce((most, { value }) => Math.max(most, value), 0));
  // A single step stands in the middle.
  const x = (step: number): number =>
    last === first
      ? (plot.left + plot.right) / 2
      : plot.left + ((step - first) / (last - first)) * (plot.right - plot.left);
  const y = (value: number): number => plot.bottom - (value / top) * (plot.bottom - plot.top);
  const drawn = shown.map((line, index) => ({ ...line, style: styleOf(index) }));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="${families}">`,
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    text(plot.left, 32, escapeXml(shortened(title, titleCharacters)), `font-size="18" fill="${ink}"`),
    ...[0, 0.25, 0.5, 0.75, 1].map((share) => horizontal(share * top, y(share * top))),
    ...stepTicks(first, last).map((step) =>
      text(
        x(step),
        plot.bottom + 22,
        step.toLocaleString('en'),
        `font-size="13" fill="${quiet}" text-anchor="middle"`,
      ),
    ),
    text(
      (plot.left + plot.right) / 2,
      plot.bottom + 44,
      'step',
      `font-size="13" fill="${quiet}" text-anchor="middle"`,
    ),
    // The most important one is last: it lies above the others.
    ...drawn.toReversed().map((line) => drawLine(line, x, y)),
    ...drawn.map((line, index) => legendRow(line, index)),
    known.length > shown.length
      ? text(
          legend.left,
          legend.top + shown.length * legend.row,
          `and ${known.length - shown.length} more`,
          `font-size="13" fill="${quiet}"`,
        )
      : '',
    '</svg>',
  ].join('\n');
}

interface DrawnLine extends PassRateLine {
  style: { colour: string; dash: string; width: number };
}

function styleOf(index: number): DrawnLine['style'] {
  const style = styles[index % styles.length] ?? { colour: ink, dash: '' };
  return { ...style, width: index === 0 ? 3.5 : 2.25 };
}

function drawLine({ points, style }: DrawnLine, x: Scale, y: Scale): string {
  const places = points.map(({ step, value }) => `${round(x(step))},${round(y(value))}`);
  const path = `<polyline points="${places.join(' ')}" fill="none" ${strokeOf(style)} stroke-linejoin="round"/>`;
  const dotted = points.length <= mostDots ? points : points.slice(-1);
  const dots = dotted.map(
    ({ step, value }) =>
      `<circle cx="${round(x(step))}" cy="${round(y(value))}" r="${style.width + 1}" fill="${style.colour}"/>`,
  );
  return path + dots.join('');
}

function legendRow({ name, points, style }: DrawnLine, index: number): string {
  const baseline = legend.top + index * legend.row;
  const end = points.at(-1);
  const figure = end === undefined ? '' : `${percentOf(end.value)} at step ${end.step.toLocaleString('en')}`;
  const emphasis = index === 0 ? ' font-weight="bold"' : '';
  return (
    `<line x1="${legend.left}" x2="${legend.left + 24}" y1="${baseline - 5}" y2="${baseline - 5}" ${strokeOf(style)}/>` +
    text(
      legend.left + 32,
      baseline,
      escapeXml(shortened(name, nameCharacters)),
      `font-size="14" fill="${ink}"${emphasis}`,
    ) +
    text(legend.left + 32, baseline + 16, figure, `font-size="12" fill="${quiet}"`)
  );
}

function horizontal(value: number, at: number): string {
  return (
    `<line x1="${plot.left}" x2="${plot.right}" y1="${round(at)}" y2="${round(at)}" stroke="${grid}" stroke-width="1"/>` +
    text(
      plot.left - 8,
      at + 5,
      `${Number((value * 100).toFixed(1))} %`,
      `font-size="13" fill="${quiet}" text-anchor="end"`,
    )
  );
}

type Scale = (value: number) => number;

/** Small rates would lie on the axis if it always went to 100 %. */
function topOf(most: number): number {
  return [0.1, 0.2, 0.4].find((top) => most <= top) ?? 1;
}

/** At most seven round steps from `first` to `last`; `first` alone if they are equal. */
function stepTicks(first: number, last: number): number[] {
  if (first === last) return [first];
  const rough = Math.max(1, (last - first) / 6);
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? 10 * power;
  const ticks: number[] = [];
  for (let step = Math.ceil(first / size) * size; step <= last; step += size) ticks.push(step);
  return ticks;
}

function text(x: number, y: number, content: string, attributes: string): string {
  return `<text x="${round(x)}" y="${round(y)}" ${attributes}>${content}</text>`;
}

function strokeOf({ colour, dash, width: thickness }: DrawnLine['style']): string {
  return `stroke="${colour}" stroke-width="${thickness}"${dash === '' ? '' : ` stroke-dasharray="${dash}"`}`;
}

function shortened(name: string, limit: number): string {
  // Characters that XML cannot hold would lose the whole picture.
  const clean = name.replace(/[\p{Cc}\p{Cs}\ufffe\uffff]/gu, ' ').trim();
  const characters = [...clean];
  return characters.length <= limit ? clean : `${characters.slice(0, limit - 1).join('')}…`;
}

function escapeXml(content: string): string {
  return content
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}

const percentOf = (share: number): string => `${(share * 100).toFixed(1)} %`;
const round = (value: number): number => Math.round(value * 10) / 10;
