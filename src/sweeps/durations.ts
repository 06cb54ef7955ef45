// Durations as text in a sweep: `90s`, `10m`, `1d 12h`.

const seconds = { s: 1, m: 60, h: 3_600, d: 86_400 } as const;
type Unit = keyof typeof seconds;

/** Whole seconds, or null if the text is not a duration. */
export function secondsIn(text: string): number | null {
  if (!/^\s*(\d{1,9}\s*[smhd]\s*)+$/.test(text)) return null;
  let total = 0;
  for (const [, count = '', unit = ''] of text.matchAll(/(\d+)\s*([smhd])/g))
    total += Number(count) * seconds[unit as Unit];
  return total;
}

/** Milliseconds of a text that the schema has accepted. */
export function millisecondsOf(text: string): number {
  const total = secondsIn(text);
  if (total === null) throw new TypeError(`"${text}" is not a time such as 90s, 10m or 1d 12h`);
  return total * 1000;
}
