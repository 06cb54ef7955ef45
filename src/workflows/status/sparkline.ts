// A curve in one line of text, for terminals, the Temporal UI and logs.

const bars = '▁▂▃▄▅▆▇█';
/** So many fit beside a figure in the Temporal UI, in a window that is 1,280 pixels wide. */
const longest = 12;

/** `▁▃▅█`, oldest value first, scaled from the least to the greatest; long series are averaged. Empty below two values. */
export function sparkline(values: readonly number[]): string {
  if (values.length < 2) return '';
  const points = averaged(values, longest);
  const least = Math.min(...points);
  const range = Math.max(...points) - least;
  const heightOf = (value: number): number =>
    range === 0 ? 3 : Math.round(((value - least) / range) * (bars.length - 1));
  return points.map((value) => bars[heightOf(value)] ?? '').join('');
}

/** At most `most` values. Each is the mean of neighbouring values; the groups' sizes differ by at most one. */
function averaged(values: readonly number[], most: number): number[] {
  const count = Math.min(values.length, most);
  return Array.from({ length: count }, (_, index) => {
    const start = Math.floor((index * values.length) / count);
    const part = values.slice(start, Math.floor(((index + 1) * values.length) / count));
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}
