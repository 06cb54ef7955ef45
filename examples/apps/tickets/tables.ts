// The ticket office's tables, and the names and values from which its databases are generated.
import type { Table } from '../table.js';

export const account = { user: 'sam', name: 'Sam Weber' };
export const today = '2026-04-15';

export const artists = [
  'glass orchard', 'iron meadow', 'quiet comet', 'silver otters', 'north lantern', 'copper fox', 'velvet harvest', 'amber trains',
  'winter atlas', 'hollow reed', 'paper summit', 'violet tide',
] as const; // prettier-ignore
export const cities = ['lima', 'cairo', 'seoul', 'bergen', 'naples', 'quito', 'tallinn', 'geneva'] as const;
export const sectionNames = [
  'floor', 'balcony', 'terrace', 'box', 'gallery', 'circle', 'stalls', 'wing', 'lounge', 'arena', 'deck', 'loft',
] as const; // prettier-ignore
export const cardKinds = ['visa', 'amex', 'maestro', 'diners'] as const;
export const friends = ['nadia', 'oscar', 'kofi', 'isaac', 'julia', 'edgar', 'karin', 'jorge'] as const;
/** Discounts in percent. */
export const codes = { SPRING: 10, FRIENDS: 20, EARLY: 25, MATINEE: 50 } as const;
export const halls = ['hall', 'park'] as const;

/** Added to the price of each seat. */
export const feePerSeat = 35;

const user = 'TEXT NOT NULL REFERENCES users';

export const tables: readonly Table[] = [
  {
    name: 'users',
    key: 1,
    columns: { name: 'TEXT NOT NULL' },
    reference: [account.user, ...friends].map((name) => [name]),
  },
  {
    name: 'venues',
    key: 1,
    columns: { name: 'TEXT NOT NULL', city: 'TEXT NOT NULL' },
    reference: cities.flatMap((city) => halls.map((hall) => [`${city} ${hall}`, city])),
  },
  {
    name: 'codes',
    key: 1,
    columns: { code: 'TEXT NOT NULL', percent: 'INTEGER NOT NULL' },
    reference: Object.entries(codes).map(([code, percent]) => [code, percent]),
  },
  {
    name: 'cards',
    key: 1,
    columns: { id: 'TEXT NOT NULL', user, kind: 'TEXT NOT NULL', last_four: 'TEXT NOT NULL' },
  },
  {
    name: 'events',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      artist: 'TEXT NOT NULL',
      venue: 'TEXT NOT NULL REFERENCES venues',
      date: 'TEXT NOT NULL',
      state: "TEXT NOT NULL CHECK (state IN ('on sale', 'cancelled'))",
    },
  },
  {
    name: 'sections',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      event: 'TEXT NOT NULL REFERENCES events',
      name: 'TEXT NOT NULL',
      price: 'INTEGER NOT NULL',
    },
  },
  {
    name: 'seats',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      section: 'TEXT NOT NULL REFERENCES sections',
      line: 'TEXT NOT NULL',
      number: 'INTEGER NOT NULL',
      state: "TEXT NOT NULL CHECK (state IN ('free', 'held', 'sold'))",
    },
  },
  {
    name: 'orders',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      user,
      event: 'TEXT NOT NULL REFERENCES events',
      state: "TEXT NOT NULL CHECK (state IN ('open', 'paid', 'cancelled'))",
      total: 'INTEGER NOT NULL',
      code: 'TEXT REFERENCES codes',
      card: 'TEXT REFERENCES cards',
    },
  },
  {
    name: 'tickets',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      order_id: 'TEXT NOT NULL REFERENCES orders',
      seat: 'TEXT NOT NULL REFERENCES seats',
      holder: user,
      state: "TEXT NOT NULL CHECK (state IN ('valid', 'void'))",
    },
  },
  // What a hold does is in `seats`: one that expired or was used leaves nothing that grading counts.
  {
    name: 'holds',
    key: 1,
    columns: { id: 'TEXT NOT NULL', minute: 'INTEGER NOT NULL', state: 'TEXT NOT NULL' },
    ignored: true,
  },
  {
    name: 'hold_seats',
    key: 2,
    columns: { hold: 'TEXT NOT NULL REFERENCES holds', seat: 'TEXT NOT NULL REFERENCES seats' },
    ignored: true,
  },
  {
    name: 'clock',
    key: 1,
    columns: { position: 'INTEGER NOT NULL', minute: 'INTEGER NOT NULL' },
    ignored: true,
  },
];
