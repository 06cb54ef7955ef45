// Dates as guests say them (`May 12`) and as the database keeps them (`2026-05-12`).
const months = [
  'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December',
]; // prettier-ignore

/** `May 12` as the next such day on or after `today`; undefined if no such day comes within a year. */
export function parseDay(text: string, today: string): string | undefined {
  const [, name, digits] = /^([A-Z][a-z]+) (\d{1,2})$/.exec(text) ?? [];
  const month = months.indexOf(name ?? '');
  if (month < 0) return undefined;
  for (const year of [Number(today.slice(0, 4)), Number(today.slice(0, 4)) + 1]) {
    const date = new Date(Date.UTC(year, month, Number(digits)));
    const iso = date.toISOString().slice(0, 10);
    if (date.getUTCMonth() === month && iso >= today) return iso;
  }
  return undefined;
}

/** `2026-05-12` as `May 12`. */
export function formatDay(iso: string): string {
  return `${months[Number(iso.slice(5, 7)) - 1] ?? ''} ${Number(iso.slice(8))}`;
}
