// Draws a ticket office around the event and the section that a task is about.
import type { Profile } from '../app.js';
import { opaqueIds } from '../opaque-ids.js';
import type { Draw } from '../random.js';
import type { Row, WorldRows } from '../table.js';
import { idsWithWords } from '../text-search.js';
import { account, artists, cardKinds, cities, feePerSeat, friends, halls, sectionNames } from './tables.js';

/** `one_in_row`: some row has one free seat. `one_pair`: only two free seats are side by side. `none`: all are sold. */
type Layout = 'some' | 'one_in_row' | 'one_pair' | 'none';

interface SubjectOptions {
  /** Free seats of the task's section. */
  layout?: Layout;
  /** The cheapest section is sold out. */
  soldOutCheapest?: boolean;
  /** Another night in the same city. Its section of the same name has free seats. */
  laterNight?: boolean;
  /** The account has an order for the artist, in another city. */
  order?: boolean;
}

interface Seat {
  id: string;
  row: string;
  number: number;
}

export interface Section {
  id: string;
  name: string;
  price: number;
  /** The seats that a task may be about, in order. */
  free: Seat[];
}

export interface Show {
  id: string;
  city: string;
  sections: Section[];
}

export interface Scene {
  profile: Profile;
  rows: WorldRows;
  artist: string;
  show: Show;
  /** The section that the task names. */
  section: Section;
  /** Another night in the same city, if the options ask for it; and a night in another city. */
  later: Show | undefined;
  elsewhere: Show;
  card: { id: string; kind: string };
  otherCards: string[];
  /** The account's order for the artist. */
  order: string | undefined;
  /** Ids that a search for the artist finds, in its order. */
  found: string[];
}

const extent = {
  default: { sections: 3, rows: 2, numbers: 3, others: 3 },
  wide: { sections: 10, rows: 11, numbers: 20, others: 30 },
};
/** In a wide world, other artists have almost the same name. */
const additions = ['tribute', 'and friends', 'unplugged', 'reunion', 'children’s show', 'after dark'];

export function drawScene(draw: Draw, profile: Profile, options: SubjectOptions = {}): Scene {
  const newId = opaqueIds(draw);
  const size = extent[profile];
  const [artist, ...otherArtists] = draw.shuffled(artists) as [string, ...string[]];
  const [city, otherCity, ...farCities] = draw.shuffled(cities) as [string, string, ...string[]];
  const names = draw.shuffled(sectionNames).slice(0, size.sections) as [string, ...string[]];
  const [firstNight, laterNight] = draw
    .shuffled(Array.from({ length: 28 }, (_, i) => 1 + i))
    .slice(0, 2)
    .sort((a, b) => a - b) as [number, number];
  const someDay = () => 1 + draw.below(28);
  const events: Row[] = [];
  const sections: Row[] = [];
  const seats: Row[] = [];
  const orders: Row[] = [];
  const tickets: Row[] = [];

  const addSeats = (section: string, layout: Layout, rows: number, numbers: number): Seat[] => {
    const free: Seat[] = [];
    for (const { row, number, isFree } of seatPlan(draw, layout, rows, numbers)) {
      const id = newId('SEA');
      seats.push([id, section, row, number, isFree ? 'free' : 'sold']);
      if (isFree) free.push({ id, row, number });
    }
    return free;
  };
  const addShow = (
    who: string,
    where: string,
    date: string,
    state: string,
    layouts: readonly Layout[],
  ): Show => {
    const id = newId('EVT');
    events.push([id, who, `${where} ${draw.pick(halls)}`, date, state]);
    const prices = new Set<number>();
    while (prices.size < layouts.length) prices.add(900 + 10 * draw.below(300));
    // The first layout is that of the task's section; only this section has many seats.
    const made = [...prices].map((price, i): Section => {
      const section = newId('SEC');
      const name = names[i % names.length] as string;
      sections.push([section, id, name, price]);
      const isLarge = i === 0 && who === artist && state === 'on sale';
      const layout = layouts[i] as Layout;
      return {
        id: section,
        ...{ name, price },
        free: addSeats(section, layout, isLarge ? size.rows : 1, isLarge ? size.numbers : 2),
      };
    });
    return { id, city: where, sections: made };
  };
  const dateOf = (month: number, day: number) => `2026-0${month}-${String(day).padStart(2, '0')}`;
  const layouts = (first: Layout): Layout[] => names.map((_, i) => (i === 0 ? first : 'some'));

  const show = addShow(artist, city, dateOf(6, firstNight), 'on sale', layouts(options.layout ?? 'some'));
  const later = options.laterNight
    ? addShow(artist, city, dateOf(6, laterNight), 'on sale', layouts('some'))
    : undefined;
  const elsewhere = addShow(artist, otherCity, dateOf(7, someDay()), 'on sale', layouts('some'));
  addShow(artist, city, dateOf(5, someDay()), 'cancelled', layouts('some').slice(0, 1));
  for (let i = 0; i < size.others; i++) {
    const near = profile === 'wide' ? additions[i] : undefined;
    const who = near === undefined ? draw.pick(otherArtists) : `${artist} ${near}`;
    addShow(who, draw.pick(cities), dateOf(5 + draw.below(4), someDay()), 'on sale', ['some']);
  }
  if (options.soldOutCheapest) sellCheapest(show, seats);

  const cards = draw
    .shuffled(cardKinds)
    .map((kind): Row => [newId('CRD'), account.user, kind, fourDigits(draw)]);
  const [own, ...others] = profile === 'wide' ? cards : cards.slice(0, 2);
  const [card = '', , kind = ''] = (own ?? []) as string[];
  const stranger: Row = [newId('CRD'), draw.pick(friends), draw.pick(cardKinds), fourDigits(draw)];

  const addOrder = (user: string, { id, sections: [first] }: Show): string => {
    const order = newId('ORD');
    const seat = newId('SEA');
    const [section, price] = [first?.id ?? '', first?.price ?? 0];
    seats.push([seat, section, 'Z', 1, 'sold']);
    orders.push([order, user, id, 'paid', price + feePerSeat, null, user === account.user ? card : null]);
    tickets.push([newId('TKT'), order, seat, user, 'valid']);
    return order;
  };
  const far = addShow(otherArtists[0] as string, farCities[0] as string, dateOf(8, someDay()), 'on sale', [
    'some',
  ]);
  addOrder(account.user, far);
  addOrder(draw.pick(friends), show);
  return {
    profile,
    rows: {
      cards: [...cards.slice(0, 1 + others.length), stranger],
      ...{ events, sections, seats, orders, tickets },
      clock: [[1, 0]],
      ...{ holds: [], hold_seats: [] },
    },
    ...{ artist, show, section: show.sections[0] as Section, later, elsewhere },
    card: { id: card, kind },
    otherCards: others.map(([id]) => String(id)),
    order: options.order ? addOrder(account.user, elsewhere) : undefined,
    found: idsWithWords(events, 1, artist),
  };
}

/** Sells all seats of the cheapest section; the task's section is not left out. */
function sellCheapest({ sections }: Show, seats: Row[]): void {
  const cheapest = sections.reduce((least, section) => (section.price < least.price ? section : least));
  cheapest.free = [];
  for (const [i, seat] of seats.entries())
    if (seat[1] === cheapest.id) seats[i] = [...seat.slice(0, 4), 'sold'];
}

function fourDigits(draw: Draw): string {
  return String(draw.below(10_000)).padStart(4, '0');
}

function seatPlan(draw: Draw, layout: Layout, rows: number, numbers: number) {
  const places = Array.from({ length: rows * numbers }, (_, i) => ({
    row: String.fromCharCode(65 + Math.floor(i / numbers)),
    number: 1 + (i % numbers),
    isFree: layout !== 'none' && draw.chance(0.45),
  }));
  const isFree = (i: number) => places[i]?.isFree === true;
  const row = draw.below(rows);
  const place = draw.below(numbers - 1);
  if (layout === 'some' && !places.some((seat) => seat.isFree))
    (places[place] as { isFree: boolean }).isFree = true;
  if (layout === 'one_in_row')
    for (let i = 0; i < numbers; i++) (places[row * numbers + i] as { isFree: boolean }).isFree = i === place;
  if (layout === 'one_pair') {
    const first = row * numbers + place;
    for (const [i, seat] of places.entries()) {
      const hasFreeNeighbour =
        (seat.number > 1 && isFree(i - 1)) || (seat.number < numbers && i + 1 === first);
      seat.isFree = i === first || i === first + 1 || (seat.isFree && !hasFreeNeighbour);
    }
  }
  return places;
}
