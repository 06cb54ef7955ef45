// Draws a booking world around the hotel and the booking that a task is about.
import type { Row, WorldRows } from '../table.js';
import type { Draw } from '../random.js';
import { parseDay } from './dates.js';
import {
  cities,
  guests,
  hotelNames,
  otherAgencies,
  ownAgency,
  rooms,
  summerMonths,
  today,
  wishes,
} from './tables.js';

export interface SubjectOptions {
  status?: 'pending' | 'confirmed';
  /** Adds a more expensive hotel in the subject's city. */
  dearerHotel?: boolean;
  /** How many bookings the subject's guest has in other cities. */
  elsewhere?: number;
  /** Values that no drawn booking has, so that a task which sets one of them changes something. */
  not?: { room?: string; guest?: string; date?: string };
}

export interface Scene {
  rows: WorldRows;
  hotel: string;
  hotelName: string;
  dearer: string[];
  booking: string;
  guest: string;
  city: string;
  status: 'pending' | 'confirmed';
}

/** A day for a task: from May to August, after the frozen clock. */
export function drawDay(draw: Draw): string {
  return `${draw.pick(summerMonths)} ${1 + draw.below(28)}`;
}

/**
 * The task's own hotel is open, and the account may change the task's booking; other hotels may be closed, and other bookings may belong to
 * another agency.
 */
export function drawScene(draw: Draw, options: SubjectOptions = {}): Scene {
  const { not = {} } = options;
  const [city, ...otherCities] = draw.shuffled(cities) as [string, ...string[]];
  const [hotelName, ...otherHotels] = draw.shuffled(hotelNames) as [string, ...string[]];
  const guest = not.guest === undefined ? draw.pick(guests) : draw.pickOther(guests, not.guest);
  const strangers = guests.filter((name) => name !== guest);
  const status = options.status ?? draw.pick(['pending', 'confirmed'] as const);
  const hotels: Row[] = [];
  const bookings: Row[] = [];
  const notes: Row[] = [];
  const ratings: Row[] = [];
  const ids = new Set<string>();

  const newId = (prefix: string) => {
    let id = draw.opaqueId(prefix);
    while (ids.has(id)) id = draw.opaqueId(prefix);
    ids.add(id);
    return id;
  };
  const addHotel = (name: string, where: string, price: number, open = 1) => {
    const id = newId('HTL');
    hotels.push([id, name, where, price, open]);
    if (draw.chance(0.4)) ratings.push([id, draw.pick(strangers), 1 + draw.below(5)]);
    return id;
  };
  const addBooking = (hotel: string, who: string, state: string, agency: string) => {
    const id = newId('BKG');
    const room = not.room === undefined ? draw.pick(rooms) : draw.pickOther(rooms, not.room);
    let day = drawDay(draw);
    while (day === not.date) day = drawDay(draw);
    // At least eight nights, which is more than any task asks for.
    bookings.push([id, hotel, who, room, parseDay(day, today) ?? today, 8 + draw.below(5), state, agency]);
    if (draw.chance(0.3)) notes.push([id, 1, draw.pick(wishes)]);
    return id;
  };

  const price = 40 + draw.below(60);
  const hotel = addHotel(hotelName, city, price);
  const dearer = options.dearerHotel
    ? [addHotel(otherHotels.pop() as string, city, price + 10 + draw.below(60))]
    : [];
  const others = otherCities
    .slice(0, 4)
    .map((where, i) =>
      addHotel(otherHotels[i] as string, where, 40 + draw.below(60), draw.chance(0.8) ? 1 : 0),
    );
  const booking = addBooking(hotel, guest, status, ownAgency);
  for (let i = 0; i < (options.elsewhere ?? 0); i++) {
    addBooking(others[i] as string, guest, draw.pick(['pending', 'confirmed']), ownAgency);
  }
  for (let i = 5 + draw.below(4); i > 0; i--) {
    const agency = draw.chance(0.7) ? ownAgency : draw.pick(otherAgencies);
    addBooking(
      draw.pick([hotel, ...others]),
      draw.pick(strangers),
      draw.pick(['pending', 'confirmed', 'arrived']),
      agency,
    );
  }
  return {
    rows: { hotels, bookings, notes, ratings, activity_log: [[1, 'admin', 'import', 'all', today]] },
    hotel,
    hotelName,
    dearer,
    booking,
    guest,
    city,
    status,
  };
}
