// Holds expire: a checkout that comes too late is refused, and the seats are free for others again.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { holdMinutes, minutesPerCall } from '../../../examples/apps/tickets/holds.js';
import { oracle } from '../../../examples/apps/task-key.js';
import type { World } from '../../../examples/apps/world.js';
import { answer, inWorld, play, rowsOf } from './play.js';

const key = 'tickets/buy_pair/000001';
const solution = oracle(key);
const { seat, second } = solution.find(({ name }) => name === 'hold_seats')?.arguments ?? {};

const stateOf = (world: World, id: unknown) => rowsOf(world, 'seats').find((row) => row.id === id)?.state;
/** The reads that fit between a hold and its checkout. */
const readsInTime = holdMinutes / minutesPerCall - 2;

describe('a hold', () => {
  it('is good until it is as old as its time, whatever is read or refused in between', () => {
    const reads = [
      { name: 'list_cards', arguments: {} },
      { name: 'search_events', arguments: { query: 'nobody' } },
      { name: 'list_orders', arguments: {} },
    ];
    const refused = [
      { name: 'create_order', arguments: { hold: 'HLD-0000' } },
      { name: 'list_seats', arguments: {} },
      { name: 'hold_seats', arguments: { seat: 'SEA-0000' } },
    ];
    const steps = fc.array(fc.oneof(fc.constantFrom(...reads), fc.constantFrom(...refused)), {
      maxLength: 12,
    });
    fc.assert(
      fc.property(steps, (calls) => {
        inWorld(key, (world) => {
          const { hold } = answer(world, 'hold_seats', { seat, second });
          let minutes = 0;
          for (const call of calls) {
            expect(stateOf(world, seat)).toBe(minutes >= holdMinutes ? 'free' : 'held');
            if (!world.call(call).isError) minutes += minutesPerCall;
          }
          const checkout = world.call({ name: 'create_order', arguments: { hold } });
          const isLate = minutes + minutesPerCall >= holdMinutes;
          expect(checkout.isError).toBe(isLate);
          if (isLate) expect(JSON.parse(checkout.text)).toEqual({ error: `409 ${String(hold)} is expired` });
          else expect([seat, second].map((id) => stateOf(world, id))).toEqual(['sold', 'sold']);
        });
      }),
      { numRuns: 200, seed: 3 },
    );
  });

  it('that expired leaves nothing: its seats can be held, and the task solved', () => {
    inWorld(key, (world) => {
      const first = answer(world, 'hold_seats', { seat, second });
      for (let i = 0; i <= readsInTime; i++) answer(world, 'list_cards', {});
      expect(stateOf(world, seat)).toBe('held');
      expect(answer(world, 'create_order', { hold: first.hold })).toEqual({
        error: `409 ${String(first.hold)} is expired`,
      });
      const again = answer(world, 'hold_seats', { seat, second });
      expect(again.hold).not.toBe(first.hold);
      const { order } = answer(world, 'create_order', { hold: again.hold });
      const pay = solution.find(({ name }) => name === 'pay_order')?.arguments;
      answer(world, 'pay_order', { ...pay, order });
      expect(world.grade().value).toBe(1);
    });
  });

  it('says until when it lasts', () => {
    inWorld(key, (world) => {
      for (let i = 0; i < 26; i++) answer(world, 'list_cards', {});
      expect(answer(world, 'hold_seats', { seat }).until).toBe('11:04');
    });
  });

  it('of a seat that is held, sold or given twice is refused, and so is another event’s', () => {
    inWorld(key, (world) => {
      const sold = rowsOf(world, 'seats').find(({ state }) => state === 'sold')?.id;
      expect(answer(world, 'hold_seats', { seat: sold })).toEqual({ error: `409 ${String(sold)} is sold` });
      expect(answer(world, 'hold_seats', { seat, second: seat }).error).toMatch(/^409 /);
      const sections = rowsOf(world, 'sections');
      const eventOf = (section: unknown) => sections.find(({ id }) => id === section)?.event;
      const onSale = new Set(
        rowsOf(world, 'events').flatMap(({ id, state }) => (state === 'on sale' ? [id] : [])),
      );
      const seats = rowsOf(world, 'seats').filter(({ state }) => state === 'free');
      const own = eventOf(seats.find(({ id }) => id === seat)?.section);
      const far = seats.find(
        ({ section }) => onSale.has(eventOf(section) ?? '') && eventOf(section) !== own,
      )?.id;
      expect(answer(world, 'hold_seats', { seat, second: far })).toEqual({
        error: '409 the seats belong to different events',
      });
      const off = seats.find(({ section }) => !onSale.has(eventOf(section) ?? ''));
      if (off)
        expect(answer(world, 'hold_seats', { seat: off.id }).error).toMatch(/^409 EVT-\w+ is cancelled$/);
      answer(world, 'hold_seats', { seat });
      expect(answer(world, 'hold_seats', { seat })).toEqual({ error: `409 ${String(seat)} is held` });
    });
  });

  it('that is released or still open is graded by its seats', () => {
    const [, release] = [0, 1].map((isReleased) =>
      inWorld(key, (world) => {
        const other = rowsOf(world, 'seats').find(
          ({ id, state }) => state === 'free' && id !== seat && id !== second,
        );
        for (const call of solution) world.call(call);
        const { hold } = answer(world, 'hold_seats', { seat: other?.id });
        if (isReleased) answer(world, 'release_hold', { hold });
        return world.grade().value;
      }),
    );
    expect(release).toBe(1);
  });
});

describe('an order', () => {
  it('is refused to others, and after its payment for a second one', () => {
    inWorld(key, (world) => {
      const other = rowsOf(world, 'orders').find(({ user }) => user !== 'sam');
      expect(answer(world, 'show_order', { order: other?.id })).toEqual({
        error: `403 no access to orders of ${String(other?.user)}`,
      });
      const strange = rowsOf(world, 'cards').find(({ user }) => user !== 'sam');
      const pay = solution.at(-1)?.arguments ?? {};
      for (const call of solution.slice(0, -1)) world.call(call);
      expect(answer(world, 'pay_order', { ...pay, card: strange?.id }).error).toMatch(/^403 /);
      expect(answer(world, 'apply_code', { order: pay.order, code: 'WINTER' })).toEqual({
        error: 'no code WINTER',
      });
      answer(world, 'pay_order', pay);
      expect(answer(world, 'pay_order', pay)).toEqual({ error: `409 ${String(pay.order)} is paid` });
    });
  });

  it('gets its discount once, rounded down', () => {
    inWorld('tickets/buy_with_code/000001', (world) => {
      const calls = oracle('tickets/buy_with_code/000001');
      const at = calls.findIndex(({ name }) => name === 'apply_code');
      for (const call of calls.slice(0, at)) world.call(call);
      const order = calls[at]?.arguments.order;
      const { total } = rowsOf(world, 'orders').find(({ id }) => id === order) ?? {};
      const half = Number(total) - Math.floor(Number(total) / 2);
      expect(answer(world, 'apply_code', { order, code: 'MATINEE' })).toEqual({ total: half });
      expect(answer(world, 'apply_code', { order, code: 'EARLY' }).error).toMatch(/^409 /);
    });
  });

  it('that is cancelled frees its seats and is no solution', () => {
    const order = solution.at(-1)?.arguments.order;
    const { dump, grade } = play(key, [...solution, { name: 'cancel_order', arguments: { order } }]);
    expect(dump.tickets).toContain('"void"');
    expect(grade.value).toBe(0);
  });
});
