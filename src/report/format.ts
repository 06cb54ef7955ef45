// The format of figures, in the report and on the command line.
export const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;

/** A change in percentage points, with its sign. */
export const points = (change: number): string =>
  `${change < 0 ? '−' : '+'}${(Math.abs(change) * 100).toFixed(1)}`;

export const whole = (count: number): string => Math.round(count).toLocaleString('en');

export const trainingTasks = (count: number): string =>
  `${whole(count)} training ${count === 1 ? 'task' : 'tasks'}`;

/** For example `8 min 19 s`; at most two units. */
export function timeSpan(seconds: number): string {
  const total = Math.max(0, Math.round(seconds));
  if (total < 60) return `${total} s`;
  if (total < 3600) return `${Math.floor(total / 60)} min ${total % 60} s`;
  const minutes = Math.round(total / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(total / 3600);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
