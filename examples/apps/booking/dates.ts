// Converts dates between the guests' form (`May 12`) and the database's (`2026-05-12`).
const months = [
  'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December',
]; // prettier-ignore

/** The next `May 12` on or after `today`; undefined if there is no such day within a year. */
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

/** Turns `2026-05-12` into `May 12`. */
export function formatDay(iso: string): string {
  return `${months[Number(iso.slice(5, 7)) - 1] ?? ''} ${Number(iso.slice(8))}`;
}
