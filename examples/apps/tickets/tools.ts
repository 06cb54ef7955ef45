// The ticket office's tools: from an event to its sections, seats, a hold, an order and the payment. Each call takes time.
import type { ToolArguments, ToolContext } from '../app.js';
import { ToolError } from '../app.js';
import { listPage, pageParameter as page, searchPage } from '../paging.js';
import type { Cell } from '../table.js';
import { hasWords } from '../text-search.js';
import { type Tool, tool } from '../tool.js';
import { endHold, heldSeats, holdSeats, passTime } from './holds.js';
import { feePerSeat } from './tables.js';

const done = { ok: true };
const event = { type: 'string', description: 'Event id, such as EVT-7Q2K' } as const;
const section = { type: 'string', description: 'Section id, such as SEC-7Q2K' } as const;
const seat = { type: 'string', description: 'Seat id, such as SEA-7Q2K' } as const;
const hold = { type: 'string', description: 'Hold id, such as HLD-7Q2K' } as const;
const order = { type: 'string', description: 'Order id, such as ORD-7Q2K' } as const;
const ticket = { type: 'string', description: 'Ticket id, such as TKT-7Q2K' } as const;

type RowObject = Readonly<Record<string, Cell>>;

const timed = (made: Tool): Tool => ({
  ...made,
  handler: {
    writes: true,
    run: (context: ToolContext, args: ToolArguments) => {
      passTime(context);
      return made.handler.run(context, args);
    },
  },
});

export const tools: readonly Tool[] = [
  tool({
    name: 'search_events',
    description: 'Find events whose artist has all words of the query.',
    writes: false,
    parameters: { query: { type: 'string', description: 'Words of the artist' }, page },
    run: ({ db, profile }, args) => {
      const { where, values } = hasWords('artist', args.query);
      const matches = db.all(
        `SELECT id, artist, city, date, state FROM events JOIN venues v ON v.name = venue
         WHERE ${where} ORDER BY id`,
        ...values,
      );
      return searchPage(profile, 'events', matches, args.page);
    },
  }),
  tool({
    name: 'list_sections',
    description: 'List the sections of an event, with the price of a seat and the number of free seats.',
    writes: false,
    parameters: { event },
    run: (context, args) => {
      mustExist(context, 'events', 'event', args.event);
      const sections = context.db.all(
        `SELECT id, name, price, (SELECT count(*) FROM seats WHERE section = sections.id AND state = 'free') AS free
         FROM sections WHERE event = ? ORDER BY id`,
        args.event,
      );
      return { sections };
    },
  }),
  tool({
    name: 'list_seats',
    description: 'List all seats of a section, by row and number.',
    writes: false,
    parameters: { section },
    run: (context, args) => {
      mustExist(context, 'sections', 'section', args.section);
      const seats = context.db.all(
        'SELECT id, line AS row, number, state FROM seats WHERE section = ? ORDER BY line, number',
        args.section,
      );
      return { seats };
    },
  }),
  tool({
    name: 'hold_seats',
    description: 'Hold a seat, or two, for some minutes.',
    writes: true,
    parameters: { seat, second: { ...seat, optional: true } },
    run: (context, args) =>
      holdSeats(context, [args.seat, ...(args.second === undefined ? [] : [args.second])]),
  }),
  tool({
    name: 'release_hold',
    description: 'Release the seats of a hold.',
    writes: true,
    parameters: { hold },
    run: (context, args) => {
      heldSeats(context, args.hold);
      endHold(context.db, args.hold, 'released', 'free');
      return done;
    },
  }),
  tool({
    name: 'create_order',
    description: 'Order the seats of a hold, before it expires.',
    writes: true,
    parameters: { hold },
    run: (context, args) => {
      const { db } = context;
      const seats = heldSeats(context, args.hold);
      const made = context.newId('ORD', 'orders');
      const first = db.get(
        'SELECT event FROM seats s JOIN sections c ON c.id = s.section WHERE s.id = ?',
        seats[0] as string,
      );
      const prices = seats.map((one) =>
        Number(
          db.get('SELECT price FROM seats s JOIN sections c ON c.id = s.section WHERE s.id = ?', one)?.price,
        ),
      );
      const total = prices.reduce((sum, price) => sum + price + feePerSeat, 0);
      db.run(
        `INSERT INTO orders VALUES (?, ?, ?, 'open', ?, NULL, NULL)`,
        made,
        context.user,
        first?.event as Cell,
        total,
      );
      for (const one of seats) {
        const id = context.newId('TKT', 'tickets');
        db.run(`INSERT INTO tickets VALUES (?, ?, ?, ?, 'valid')`, id, made, one, context.user);
      }
      endHold(db, args.hold, 'used', 'sold');
      return { order: made, total };
    },
  }),
  tool({
    name: 'apply_code',
    description: 'Apply a discount code to an order that is not paid.',
    writes: true,
    parameters: { order, code: { type: 'string', description: 'Code' } },
    run: (context, args) => {
      const { total, state, code } = mustBeOwn(context, args.order);
      if (state !== 'open') throw new ToolError(409, `${args.order} is ${String(state)}`);
      if (code !== null) throw new ToolError(409, `${args.order} has a code already`);
      const found = context.db.get('SELECT percent FROM codes WHERE code = ?', args.code);
      if (!found) throw new ToolError(422, `no code ${args.code}`);
      const reduced = Number(total) - Math.floor((Number(total) * Number(found.percent)) / 100);
      context.db.run('UPDATE orders SET total = ?, code = ? WHERE id = ?', reduced, args.code, args.order);
      return { total: reduced };
    },
  }),
  tool({
    name: 'list_cards',
    description: 'List your cards.',
    writes: false,
    parameters: {},
    run: ({ db, user }) => ({
      cards: db.all('SELECT id, kind, last_four FROM cards WHERE user = ? ORDER BY id', user),
    }),
  }),
  tool({
    name: 'pay_order',
    description: 'Pay an order with a card.',
    writes: true,
    parameters: { order, card: { type: 'string', description: 'Card id, such as CRD-7Q2K' } },
    run: (context, args) => {
      const { state, total } = mustBeOwn(context, args.order);
      if (state !== 'open') throw new ToolError(409, `${args.order} is ${String(state)}`);
      const card = context.db.get('SELECT user FROM cards WHERE id = ?', args.card);
      if (!card) throw new ToolError(404, `no card ${args.card}`);
      if (card.user !== context.user) throw new ToolError(403, `${args.card} is not your card`);
      context.db.run(`UPDATE orders SET state = 'paid', card = ? WHERE id = ?`, args.card, args.order);
      return { total, tickets: ticketsOf(context, args.order) };
    },
  }),
  tool({
    name: 'list_orders',
    description: 'List your orders.',
    writes: false,
    parameters: { page },
    run: ({ db, profile, user }, args) => {
      const rows = db.all(
        `SELECT o.id, e.artist, v.city, e.date, o.state, o.total FROM orders o
         JOIN events e ON e.id = o.event JOIN venues v ON v.name = e.venue WHERE o.user = ? ORDER BY o.id`,
        user,
      );
      return listPage(profile, 'orders', rows, args.page);
    },
  }),
  tool({
    name: 'show_order',
    description: 'Show an order with its tickets.',
    writes: false,
    parameters: { order },
    run: (context, args) => {
      const { id, state, total } = mustBeOwn(context, args.order);
      return { id, state, total, tickets: ticketsOf(context, args.order) };
    },
  }),
  tool({
    name: 'cancel_order',
    description: 'Cancel an order: its seats become free.',
    writes: true,
    parameters: { order },
    run: (context, args) => {
      const { state } = mustBeOwn(context, args.order);
      if (state === 'cancelled') throw new ToolError(409, `${args.order} is cancelled`);
      context.db.run(
        `UPDATE seats SET state = 'free' WHERE id IN (SELECT seat FROM tickets WHERE order_id = ?)`,
        args.order,
      );
      context.db.run(`UPDATE tickets SET state = 'void' WHERE order_id = ?`, args.order);
      context.db.run(`UPDATE orders SET state = 'cancelled' WHERE id = ?`, args.order);
      return done;
    },
  }),
  tool({
    name: 'transfer_ticket',
    description: 'Pass a ticket of a paid order on to a friend.',
    writes: true,
    parameters: { ticket, to: { type: 'string', description: 'Friend' } },
    run: (context, args) => {
      const { order_id, state, holder } = mustExist(context, 'tickets', 'ticket', args.ticket);
      if (mustBeOwn(context, String(order_id)).state !== 'paid')
        throw new ToolError(409, `${String(order_id)} is not paid`);
      if (state !== 'valid' || holder !== context.user)
        throw new ToolError(409, `${args.ticket} is not yours any more`);
      if (!context.db.get('SELECT 1 FROM users WHERE name = ?', args.to))
        throw new ToolError(422, `no friend ${args.to}`);
      context.db.run('UPDATE tickets SET holder = ? WHERE id = ?', args.to, args.ticket);
      return done;
    },
  }),
].map(timed);

function ticketsOf({ db }: ToolContext, orderId: string): object[] {
  return db.all(
    `SELECT t.id, s.line AS row, s.number, t.holder FROM tickets t JOIN seats s ON s.id = t.seat
     WHERE t.order_id = ? ORDER BY s.line, s.number`,
    orderId,
  );
}

function mustExist({ db }: ToolContext, table: string, noun: string, id: string): RowObject {
  const row = db.get(`SELECT * FROM ${table} WHERE id = ?`, id);
  if (!row) throw new ToolError(404, `no ${noun} ${id}`);
  return row;
}

function mustBeOwn(context: ToolContext, id: string): RowObject {
  const row = mustExist(context, 'orders', 'order', id);
  if (row.user !== context.user) throw new ToolError(403, `no access to orders of ${String(row.user)}`);
  return row;
}
