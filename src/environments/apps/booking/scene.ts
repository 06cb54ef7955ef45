// A booking world around one hotel and one booking that a task is about.
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
  /** A second, dearer hotel in the subject's city. */
  dearerHotel?: boolean;
  /** Bookings of the subject's guest in other cities. */
  elsewhere?: number;
  /** The task's text does not mention these, so that doing it changes something. */
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

/** Days that tasks speak of: May to August, after the frozen clock. */
export function drawDay(draw: Draw): string {
  return `${draw.pick(summerMonths)} ${1 + draw.below(28)}`;
}

/** The subjects are the account's own, and open; some of the other hotels and bookings are neither. */
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
    // Eight nights and more: no task asks for that many.
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
