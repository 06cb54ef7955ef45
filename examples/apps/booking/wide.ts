// A wide world of the booking desk: more and almost equal hotels in the task's city, and cancelled bookings of the same guest.
import { opaqueIds } from '../opaque-ids.js';
import type { Draw } from '../random.js';
import type { Row, WorldRows } from '../table.js';
import { parseDay } from './dates.js';
import { drawDay, type Scene } from './scene.js';
import {
  cities,
  guests,
  hotelNames,
  otherAgencies,
  ownAgency,
  rooms,
  statuses,
  today,
  wishes,
} from './tables.js';

const near = ['annex', 'garden', 'suites', 'express', 'harbour', 'old town'];
const hotelsElsewhere = 30;
const cancelledBookings = 3;
const otherBookings = 80;
const sentencesAboutHotel = 32;

/** The rows of the scene, and more. The task's hotel stays the cheapest of its city if it was; its guest has no other open booking there. */
export function widened(draw: Draw, scene: Scene): WorldRows {
  const { rows, city, guest, hotelName } = scene;
  const hotels = rows.hotels ?? [];
  const known = new Set([...hotels, ...(rows.bookings ?? [])].map(([id]) => id));
  const drawId = opaqueIds(draw);
  const newId = (prefix: string) => {
    let id = drawId(prefix);
    while (known.has(id)) id = drawId(prefix);
    return id;
  };
  const highest = Math.max(...hotels.map(([, , , price]) => Number(price)));
  const hotelRow = (name: string, where: string): Row => [
    newId('HTL'),
    ...[name, where, highest + 1 + draw.below(200), draw.chance(0.8) ? 1 : 0],
  ];
  const inCity = [hotelName, ...hotelNames.filter((name) => name !== hotelName).slice(0, 2)].flatMap((name) =>
    near.map((word) => hotelRow(`${name} ${word}`, city)),
  );
  const elsewhere = Array.from({ length: hotelsElsewhere }, () =>
    hotelRow(`${draw.pick(hotelNames)} ${draw.pick(near)}`, draw.pickOther(cities, city)),
  );
  const bookingRow = (hotel: Row, who: string, status: string, agency: string): Row => [
    newId('BKG'),
    ...[
      hotel[0] ?? null,
      who,
      draw.pick(rooms),
      parseDay(drawDay(draw), today) ?? today,
      1 + draw.below(12),
      status,
    ],
    agency,
  ];
  const cancelled = Array.from({ length: cancelledBookings }, () =>
    bookingRow(draw.pick(inCity), guest, 'cancelled', ownAgency),
  );
  const others = Array.from({ length: otherBookings }, () =>
    bookingRow(
      draw.pick([...inCity, ...elsewhere]),
      draw.pickOther(guests, guest),
      draw.pick(statuses),
      draw.pick([ownAgency, ownAgency, ...otherAgencies]),
    ),
  );
  return {
    ...rows,
    hotels: [...hotels, ...inCity, ...elsewhere],
    bookings: [...(rows.bookings ?? []), ...cancelled, ...others],
  };
}

/** What a wide world's search says about a hotel. Not stored: it is a function of the drawn id. */
export function aboutHotel(draw: Draw): string {
  const sentence = () =>
    draw.pick([
      `${draw.pick(rooms)} rooms with ${draw.pick(wishes)}`,
      `${1 + draw.below(40)} minutes from the ${draw.pick(near)}`,
      `${draw.pick(guests)} liked the ${draw.pick(rooms)} room, but not the ${draw.pick(wishes)}`,
    ]);
  return Array.from({ length: sentencesAboutHotel }, sentence).join('. ');
}
