// The booking desk's tables, and the names and values from which its databases are generated.
import type { Table } from '../table.js';

export const account = { user: 'desk', name: 'Front Desk' };
export const today = '2026-04-15';

export const cities = [
  'lima', 'cairo', 'seoul', 'bergen', 'naples', 'quito', 'tallinn', 'geneva', 'hanoi', 'perth', 'bruges', 'malaga',
] as const; // prettier-ignore
export const hotelNames = [
  'lantern', 'orchard', 'meridian', 'harvest', 'beacon', 'willow', 'summit', 'lagoon', 'atlas', 'juniper', 'compass', 'velvet',
] as const; // prettier-ignore
export const guests = [
  'alma', 'bruno', 'chen', 'delia', 'emil', 'farah', 'georg', 'hana',
  'igor', 'jorge', 'karin', 'liam', 'mina', 'noel', 'paula', 'rafael',
] as const; // prettier-ignore
export const rooms = ['single', 'double', 'twin', 'suite', 'studio', 'family'] as const;
export const wishes = [
  'late arrival',
  'sea view',
  'baby cot',
  'no feathers',
  'airport pickup',
  'ground floor',
] as const;
export const summerMonths = ['May', 'June', 'July', 'August'] as const;
export const statuses = ['pending', 'confirmed', 'arrived', 'cancelled'] as const;

/** The agency whose bookings this desk may change; another desk is responsible for all others. */
export const ownAgency = 'house';
export const otherAgencies = ['atlantic', 'polaris'] as const;

export const tables: readonly Table[] = [
  {
    name: 'guests',
    key: 1,
    columns: { name: 'TEXT NOT NULL', tier: 'TEXT NOT NULL' },
    reference: guests.map((name, i) => [name, i % 4 === 0 ? 'gold' : 'standard']),
  },
  {
    name: 'room_types',
    key: 1,
    columns: { name: 'TEXT NOT NULL', beds: 'INTEGER NOT NULL' },
    reference: rooms.map((name, i) => [name, 1 + (i % 4)]),
  },
  {
    name: 'hotels',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      name: 'TEXT NOT NULL',
      city: 'TEXT NOT NULL',
      price: 'INTEGER NOT NULL',
      open: 'INTEGER NOT NULL',
    },
  },
  {
    name: 'bookings',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      hotel: 'TEXT NOT NULL REFERENCES hotels',
      guest: 'TEXT NOT NULL REFERENCES guests',
      room: 'TEXT NOT NULL REFERENCES room_types',
      date: 'TEXT NOT NULL',
      nights: 'INTEGER NOT NULL',
      status: "TEXT NOT NULL CHECK (status IN ('pending', 'confirmed', 'arrived', 'cancelled'))",
      agency: 'TEXT NOT NULL',
    },
  },
  {
    name: 'notes',
    key: 2,
    columns: {
      booking: 'TEXT NOT NULL REFERENCES bookings',
      position: 'INTEGER NOT NULL',
      text: 'TEXT NOT NULL',
    },
  },
  {
    name: 'ratings',
    key: 2,
    columns: {
      hotel: 'TEXT NOT NULL REFERENCES hotels',
      author: 'TEXT NOT NULL',
      stars: 'INTEGER NOT NULL CHECK (stars BETWEEN 1 AND 5)',
    },
  },
  {
    name: 'activity_log',
    key: 1,
    columns: {
      position: 'INTEGER NOT NULL',
      user: 'TEXT NOT NULL',
      action: 'TEXT NOT NULL',
      target: 'TEXT NOT NULL',
      on_date: 'TEXT NOT NULL',
    },
    ignored: true,
  },
];
