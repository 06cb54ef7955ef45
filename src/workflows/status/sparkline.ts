// A curve in one line of text, for a terminal, the Temporal UI and a log alike.

const bars = '▁▂▃▄▅▆▇█';
const longest = 16;

/** `▁▃▅█`, oldest first, from the least to the greatest of the values; longer series are averaged. Empty below two values. */
export function sparkline(values: readonly number[]): string {
  if (values.length < 2) return '';
  const points = averaged(values, longest);
  const least = Math.min(...points);
  const range = Math.max(...points) - least;
  const heightOf = (value: number): number =>
    range === 0 ? 3 : Math.round(((value - least) / range) * (bars.length - 1));
  return points.map((value) => bars[heightOf(value)] ?? '').join('');
}

/** At most `most` values, each the mean of as many neighbours as the others, or one more. */
function averaged(values: readonly number[], most: number): number[] {
  const count = Math.min(values.length, most);
  return Array.from({ length: count }, (_, index) => {
    const start = Math.floor((index * values.length) / count);
    const part = values.slice(start, Math.floor(((index + 1) * values.length) / count));
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}
