// Holds and the clock: each call that succeeds takes some minutes, and a hold that grows too old releases its seats.
import type { ToolContext } from '../app.js';
import { ToolError } from '../app.js';

export const minutesPerCall = 2;
/** A hold of this age has expired. */
export const holdMinutes = 10;
const opensAtHour = 10;

/** Moves the clock by one call and releases the seats of holds that have expired. A call that fails takes no time, because it is undone. */
export function passTime({ db }: ToolContext): void {
  db.run('UPDATE clock SET minute = minute + ?', minutesPerCall);
  const expired = db.all(
    `SELECT id FROM holds WHERE state = 'open' AND minute + ? <= (SELECT minute FROM clock)`,
    holdMinutes,
  );
  for (const { id } of expired) endHold(db, String(id), 'expired', 'free');
}

/** Holds free seats of one event; the first seat's event must be on sale. */
export function holdSeats(context: ToolContext, seats: readonly string[]): object {
  const { db } = context;
  const events = new Set<unknown>();
  for (const seat of seats) {
    const row = db.get(
      `SELECT s.state, e.id AS event, e.state AS sale FROM seats s
       JOIN sections c ON c.id = s.section JOIN events e ON e.id = c.event WHERE s.id = ?`,
      seat,
    );
    if (!row) throw new ToolError(404, `no seat ${seat}`);
    if (row.sale !== 'on sale') throw new ToolError(409, `${String(row.event)} is ${String(row.sale)}`);
    if (row.state !== 'free') throw new ToolError(409, `${seat} is ${String(row.state)}`);
    events.add(row.event);
  }
  if (new Set(seats).size < seats.length) throw new ToolError(409, 'the seats must be different');
  if (events.size > 1) throw new ToolError(409, 'the seats belong to different events');
  const hold = context.newId('HLD', 'holds');
  db.run(`INSERT INTO holds SELECT ?, minute, 'open' FROM clock`, hold);
  for (const seat of seats) {
    db.run('INSERT INTO hold_seats VALUES (?, ?)', hold, seat);
    db.run(`UPDATE seats SET state = 'held' WHERE id = ?`, seat);
  }
  return { hold, until: timeText(minuteOf(context) + holdMinutes) };
}

/** The seats of an open hold. */
export function heldSeats({ db }: ToolContext, hold: string): string[] {
  const row = db.get('SELECT state FROM holds WHERE id = ?', hold);
  if (!row) throw new ToolError(404, `no hold ${hold}`);
  if (row.state !== 'open') throw new ToolError(409, `${hold} is ${String(row.state)}`);
  return db
    .all('SELECT seat FROM hold_seats WHERE hold = ? ORDER BY seat', hold)
    .map(({ seat }) => String(seat));
}

export function endHold(
  db: ToolContext['db'],
  hold: string,
  state: 'expired' | 'released' | 'used',
  seatState: 'free' | 'sold',
): void {
  db.run('UPDATE holds SET state = ? WHERE id = ?', state, hold);
  db.run(
    'UPDATE seats SET state = ? WHERE id IN (SELECT seat FROM hold_seats WHERE hold = ?)',
    seatState,
    hold,
  );
}

function minuteOf({ db }: ToolContext): number {
  return Number(db.get('SELECT minute FROM clock')?.minute);
}

/** Minutes since the office opened as a time of day, `10:24`. */
function timeText(minutes: number): string {
  const [hour, minute] = [opensAtHour + Math.floor(minutes / 60), minutes % 60];
  return `${hour % 24}:${String(minute).padStart(2, '0')}`;
}
