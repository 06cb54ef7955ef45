// Builds SVG from parts: elements, scales and axes. Numbers are rounded to a tenth; all text is escaped. Colours and fonts come from CSS
// classes in the style sheet of the page or picture: axes use the class `grid`, callers may use others.

export interface Place {
  x: number;
  y: number;
}

/** In SVG units; y grows downwards. */
export interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export type Scale = (value: number) => number;
type Attributes = Record<string, string | number>;

/** Maps `low`…`high` to `start`…`end`. If `low` equals `high`, every value is mapped to the middle. */
export function linearScale(
  [low, high]: readonly [number, number],
  [start, end]: readonly [number, number],
): Scale {
  return (value) => start + (low === high ? 0.5 : (value - low) / (high - low)) * (end - start);
}

/** `content` must be SVG; it is not escaped. */
export function element(name: string, attributes: Attributes, ...content: readonly string[]): string {
  const written = Object.entries(attributes).map(
    ([key, value]) => ` ${key}="${typeof value === 'number' ? round(value) : escapeXml(value)}"`,
  );
  const inner = content.join('');
  return inner === '' ? `<${name}${written.join('')}/>` : `<${name}${written.join('')}>${inner}</${name}>`;
}

/** The baseline starts at `x` and `y`, unless `attributes` set another anchor. */
export function text(content: string, x: number, y: number, attributes: Attributes = {}): string {
  return element('text', { x, y, ...attributes }, escapeXml(content));
}

export function line(from: Place, to: Place, attributes: Attributes): string {
  return element('line', { ...attributes, x1: from.x, x2: to.x, y1: from.y, y2: to.y });
}

/** An empty string if there are no points. */
export function polyline(points: readonly Place[], attributes: Attributes): string {
  if (points.length === 0) return '';
  const path = points.map(({ x, y }) => `${round(x)},${round(y)}`).join(' ');
  return element('polyline', { ...attributes, points: path });
}

/** Draws a line across the plot at each value, and the value to the left of the line. */
export function yAxis(
  values: readonly number[],
  y: Scale,
  { left, right }: Box,
  format: (value: number) => string,
): string {
  const at = (value: number): string =>
    line({ x: left, y: y(value) }, { x: right, y: y(value) }, { class: 'grid' }) +
    text(format(value), left - 8, y(value), { dy: '0.35em', 'text-anchor': 'end' });
  return values.map(at).join('\n');
}

/** Writes whole numbers from `first` to `last` below the plot, at most `count` + 1 of them. */
export function stepAxis(first: number, last: number, count: number, x: Scale, { bottom }: Box): string {
  // Keeps ticks at least one step apart. With ticks closer together the loop might never end: a number of sixteen digits stays the same
  // when less than 1 is added.
  const whole = (most: number): number[] =>
    (first === last ? [first] : ticks(first, last, Math.min(most, last - first))).filter(
      (step) => Number.isInteger(step) && step >= first && step <= last,
    );
  let steps = whole(count);
  // One tick does not show a scale.
  for (let more = 2 * count; steps.length < 2 && more <= 8 * count; more *= 2) steps = whole(more);
  return steps
    .map((step) => text(step.toLocaleString('en'), x(step), bottom + 18, { 'text-anchor': 'middle' }))
    .join('\n');
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

export function escapeXml(content: string): string {
  return content
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
