// Draws pass rates by step as an SVG, and as a PNG for Slack, which cannot show a page.
import { createRequire } from 'node:module';
import { renderAsync, type ResvgRenderOptions } from '@resvg/resvg-js';
import {
  element,
  line,
  linearScale,
  polyline,
  type Scale,
  stepAxis,
  text,
  ticks,
  yAxis,
} from '../../report/charts/svg.js';

/** The pass rates of one environment, or of all environments. */
interface PassRateLine {
  name: string;
  /** Shares from 0 to 1, in order of steps. */
  points: { step: number; value: number }[];
}

interface ChartPicture {
  title: string;
  /** The first line is drawn as the most important one; lines beyond `mostLines` are only counted. */
  lines: PassRateLine[];
}

const width = 800;
const height = 400;
const plot = { left: 62, right: 560, top: 56, bottom: 346 };
const legend = { left: 584, top: 66, row: 37 };
export const mostLines = 8;
const titleCharacters = 60;
const nameCharacters = 20;
/** With more dots, they would merge into a band. */
const mostDots = 40;

/** Contrast of at least 4.5 : 1 on white; distinct for colour-blind readers, and without any colour by dashes and marks. */
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
/** The font comes with the packages: a machine may have none, and a search for system fonts takes half a second per picture. */
const { resolve } = createRequire(import.meta.url);
const font: NonNullable<ResvgRenderOptions['font']> = {
  loadSystemFonts: false,
  fontFiles: ['DejaVuSans.ttf', 'DejaVuSans-Bold.ttf'].map((file) => resolve(`dejavu-fonts-ttf/ttf/${file}`)),
  defaultFontFamily: 'DejaVu Sans',
};
const styleSheet = `text { font-size: 13px; font-family: DejaVu Sans, sans-serif; fill: #55565a; } .grid { stroke: #e2e2e5; } .line { fill: none; stroke-linejoin: round; }
.title { font-size: 18px; fill: #1d1c1d; } .name { font-size: 14px; fill: #1d1c1d; } .first { font-weight: bold; }`;

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
  const x = linearScale([first, last], [plot.left, plot.right]);
  const y = linearScale([0, top], [plot.bottom, plot.top]);
  const more = known.length - shown.length;
  return element(
    'svg',
    { xmlns: 'http://www.w3.org/2000/svg', viewBox: `0 0 ${width} ${height}`, width, height },
    element('style', {}, styleSheet),
    element('rect', { width, height, fill: '#ffffff' }),
    text(shortened(title, titleCharacters), plot.left, 32, { class: 'title' }),
    yAxis(ticks(0, top, 5), y, plot, (value) => `${Number((value * 100).toFixed(1))} %`),
    stepAxis(first, last, 6, x, plot),
    text('step', (plot.left + plot.right) / 2, plot.bottom + 40, { 'text-anchor': 'middle' }),
    // The most important line is drawn last, above the others.
    ...shown.map((one, index) => drawLine(one, index, x, y)).toReversed(),
    ...shown.map(legendRow),
    more > 0 ? text(`and ${more} more`, legend.left, legend.top + shown.length * legend.row) : '',
  );
}

function strokeOf(index: number): { stroke: string; 'stroke-width': number; 'stroke-dasharray': string } {
  const { colour, dash } = styles[index % styles.length] as (typeof styles)[number];
  return { stroke: colour, 'stroke-width': index === 0 ? 3.5 : 2.3, 'stroke-dasharray': dash };
}

function drawLine({ points }: PassRateLine, index: number, x: Scale, y: Scale): string {
  const places = points.map(({ step, value }) => ({ x: x(step), y: y(value) }));
  const stroke = strokeOf(index);
  const dots = (places.length <= mostDots ? places : places.slice(-1)).map((place) =>
    element('circle', { cx: place.x, cy: place.y, r: stroke['stroke-width'] + 1, fill: stroke.stroke }),
  );
  return polyline(places, { class: 'line', ...stroke }) + dots.join('');
}

function legendRow({ name, points }: PassRateLine, index: number): string {
  const baseline = legend.top + index * legend.row;
  const { step, value } = points.at(-1) as PassRateLine['points'][number];
  const [left, y] = [legend.left + 32, baseline - 5];
  return (
    line({ x: legend.left, y }, { x: legend.left + 24, y }, { class: 'line', ...strokeOf(index) }) +
    text(shortened(name, nameCharacters), left, baseline, { class: index === 0 ? 'name first' : 'name' }) +
    text(`${(value * 100).toFixed(1)} % at step ${step.toLocaleString('en')}`, left, baseline + 16)
  );
}

/** Top of the axis: small rates would lie on the bottom line if the axis always reached 100 %. */
function topOf(most: number): number {
  return [0.1, 0.2, 0.4].find((top) => most <= top) ?? 1;
}

function shortened(name: string, limit: number): string {
  // Characters that XML does not allow would make the whole picture invalid.
  const clean = name.replace(/[\p{Cc}\p{Cs}\ufffe\uffff]/gu, ' ').trim();
  const characters = [...clean];
  return characters.length <= limit ? clean : `${characters.slice(0, limit - 1).join('')}…`;
}
