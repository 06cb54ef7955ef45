// The booking desk's tools. The desk may read everything, but change only its own agency's bookings.
import type { ToolContext } from '../app.js';
import type { Cell } from '../table.js';
import { ToolError } from '../app.js';
import { listSize, pageParameter as page, searchPage } from '../paging.js';
import { Draw } from '../random.js';
import { type Tool, tool } from '../tool.js';
import { formatDay, parseDay } from './dates.js';
import { ownAgency, rooms, statuses } from './tables.js';
import { aboutHotel } from './wide.js';

const done = { ok: true };
const id = { type: 'string', description: 'Booking id, such as BKG-7Q2K' } as const;
const hotel = { type: 'string', description: 'Hotel id, such as HTL-7Q2K' } as const;
const guest = { type: 'string', description: 'Guest' } as const;
const room = { type: 'string', description: 'Kind of room', enum: rooms } as const;
const date = { type: 'string', description: 'First day, such as May 12' } as const;
const nights = { type: 'integer', description: 'Nights', minimum: 1, maximum: 30 } as const;
const limit = {
  type: 'integer',
  description: 'Rows of a page',
  minimum: 1,
  maximum: 50,
  optional: true,
} as const;

const searchSize = 3;

export const tools: readonly Tool[] = [
  tool({
    name: 'search_hotels',
    description: 'Find the hotels of a city.',
    writes: false,
    parameters: { city: { type: 'string', description: 'City' }, page },
    run: ({ db, profile }, args) => {
      const matches = db.all('SELECT id, name, price FROM hotels WHERE city = ? ORDER BY id', args.city);
      if (profile === 'wide') {
        const described = matches.map((row) => ({
          ...row,
          about: aboutHotel(new Draw(`${String(row.id)}/about`)),
        }));
        return searchPage(profile, 'hotels', described, args.page);
      }
      return pageOf('hotels', matches, args.page ?? 1);
    },
  }),
  tool({
    name: 'find_bookings',
    description: 'Find the bookings of a guest in a city.',
    writes: false,
    parameters: { guest, city: { type: 'string', description: 'City' }, page },
    run: ({ db, profile }, args) => {
      const matches = db.all(
        `SELECT b.id, b.date, b.status FROM bookings b JOIN hotels h ON h.id = b.hotel
         WHERE b.guest = ? AND h.city = ? ORDER BY b.id`,
        args.guest,
        args.city,
      );
      const bookings = matches.map((row) => ({ ...row, date: formatDay(String(row.date)) }));
      if (profile === 'wide') return searchPage(profile, 'bookings', bookings, args.page);
      return pageOf('bookings', bookings, args.page ?? 1);
    },
  }),
  tool({
    name: 'list_bookings',
    description: 'List bookings by status, a page at a time, with the total.',
    writes: false,
    parameters: { status: { type: 'string', description: 'Status', enum: statuses }, page, limit },
    run: ({ db, profile }, args) => {
      const size = args.limit ?? listSize[profile];
      const count = db.get('SELECT count(*) AS total FROM bookings WHERE status = ?', args.status);
      const rows = db.all(
        'SELECT id, guest, date FROM bookings WHERE status = ? ORDER BY id LIMIT ? OFFSET ?',
        args.status,
        size,
        ((args.page ?? 1) - 1) * size,
      );
      const total = Number(count?.total);
      const next = (args.page ?? 1) * size < total ? { next: (args.page ?? 1) + 1 } : {};
      return {
        bookings: rows.map((row) => ({ ...row, date: formatDay(String(row.date)) })),
        total,
        ...(profile === 'wide' ? next : {}),
      };
    },
  }),
  tool({
    name: 'book_room',
    description: 'Book a room of a hotel for a guest.',
    writes: true,
    parameters: { hotel, guest, room, date, nights },
    run: (context, args) => {
      mustBeOpen(context, args.hotel);
      mustBeGuest(context, args.guest);
      const day = futureDay(context, args.date);
      const booking = context.newId('BKG', 'bookings');
      context.db.run(
        `INSERT INTO bookings VALUES (?, ?, ?, ?, ?, ?, 'confirmed', ?)`,
        booking,
        args.hotel,
        args.guest,
        args.room,
        day,
        args.nights,
        ownAgency,
      );
      logged(context, 'book', booking);
      return { id: booking };
    },
  }),
  tool({
    name: 'cancel_booking',
    description: 'Cancel a booking.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'cancel', args.id, 'status', 'cancelled'),
  }),
  tool({
    name: 'confirm_booking',
    description: 'Confirm a booking.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'confirm', args.id, 'status', 'confirmed'),
  }),
  tool({
    name: 'check_in',
    description: 'Check the guest of a booking in.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'check_in', args.id, 'status', 'arrived'),
  }),
  tool({
    name: 'change_date',
    description: 'Move a booking to another first day.',
    writes: true,
    parameters: { id, date },
    run: (context, args) => setColumn(context, 'date', args.id, 'date', futureDay(context, args.date)),
  }),
  tool({
    name: 'change_room',
    description: 'Change the kind of room of a booking.',
    writes: true,
    parameters: { id, room },
    run: (context, args) => setColumn(context, 'room', args.id, 'room', args.room),
  }),
  tool({
    name: 'change_nights',
    description: 'Change the number of nights of a booking.',
    writes: true,
    parameters: { id, nights },
    run: (context, args) => setColumn(context, 'nights', args.id, 'nights', args.nights),
  }),
  tool({
    name: 'change_guest',
    description: 'Pass a booking on to another guest.',
    writes: true,
    parameters: { id, guest },
    run: (context, args) => {
      mustBeGuest(context, args.guest);
      return setColumn(context, 'guest', args.id, 'guest', args.guest);
    },
  }),
  tool({
    name: 'add_note',
    description: 'Note a wish on a booking.',
    writes: true,
    parameters: { id, note: { type: 'string', description: 'The note' } },
    run: (context, args) => {
      mustBeOwn(context, args.id);
      context.db.run(
        'INSERT INTO notes SELECT ?, coalesce(max(position), 0) + 1, ? FROM notes WHERE booking = ?',
        args.id,
        args.note,
        args.id,
      );
      return logged(context, 'note', args.id);
    },
  }),
  tool({
    name: 'rate_hotel',
    description: 'Rate a hotel with 1 to 5 stars.',
    writes: true,
    parameters: { hotel, stars: { type: 'integer', description: 'Stars', minimum: 1, maximum: 5 } },
    run: (context, args) => {
      mustBeOpen(context, args.hotel);
      context.db.run(
        'INSERT INTO ratings VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET stars = excluded.stars',
        args.hotel,
        context.user,
        args.stars,
      );
      return logged(context, 'rate', args.hotel);
    },
  }),
];

/** One page of rows; with the total if there are several pages. */
function pageOf(name: string, matches: readonly object[], page: number): object {
  const rows = matches.slice((page - 1) * searchSize, page * searchSize);
  return rows.length === matches.length ? { [name]: rows } : { [name]: rows, total: matches.length };
}

function setColumn(
  context: ToolContext,
  action: string,
  booking: string,
  column: string,
  value: Cell,
): object {
  mustBeOwn(context, booking);
  context.db.run(`UPDATE bookings SET ${column} = ? WHERE id = ?`, value, booking);
  return logged(context, action, booking);
}

function mustBeOwn({ db }: ToolContext, booking: string): void {
  const row = db.get('SELECT agency FROM bookings WHERE id = ?', booking);
  if (!row) throw new ToolError(404, `no booking ${booking}`);
  if (row.agency !== ownAgency) throw new ToolError(403, `no access to bookings of ${String(row.agency)}`);
}

function mustBeOpen({ db }: ToolContext, hotelId: string): void {
  const row = db.get('SELECT open FROM hotels WHERE id = ?', hotelId);
  if (!row) throw new ToolError(404, `no hotel ${hotelId}`);
  if (row.open !== 1) throw new ToolError(409, `${hotelId} is closed`);
}

function mustBeGuest({ db }: ToolContext, name: string): void {
  if (!db.get('SELECT 1 FROM guests WHERE name = ?', name)) throw new ToolError(422, `no guest ${name}`);
}

function futureDay({ today }: ToolContext, text: string): string {
  const day = parseDay(text, today);
  if (day === undefined) throw new ToolError(422, `date must be a day such as May 12`);
  return day;
}

function logged({ db, user, today }: ToolContext, action: string, target: string): object {
  db.run(
    'INSERT INTO activity_log SELECT coalesce(max(position), 0) + 1, ?, ?, ?, ? FROM activity_log',
    user,
    action,
    target,
    today,
  );
  return done;
}
