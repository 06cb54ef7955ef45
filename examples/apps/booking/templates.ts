// The booking desk's task templates. Difficulty 1 gives ids; difficulty 2 gives a description, so the agent must search first.
import type { ToolCall } from '../task-row.js';
import type { Mistakes, Profile, Scenario, TaskTemplate } from '../app.js';
import { searchCalls } from '../paging.js';
import type { Draw } from '../random.js';
import type { Row, WorldRows } from '../table.js';
import { drawDay, drawScene, type Scene, type SubjectOptions } from './scene.js';
import { guests, rooms, wishes } from './tables.js';
import { widened } from './wide.js';

interface Plan {
  scene: Scene;
  act: ToolCall;
  mistakes: Mistakes;
  values?: Scenario['values'];
  entities?: Scenario['entities'];
}

type Planner = (draw: Draw) => Plan;

function rowsOf(scene: Scene, draw: Draw, profile: Profile): WorldRows {
  return profile === 'wide' ? widened(draw, scene) : scene.rows;
}

/** A template that is solved by one call, with the id from the wording. */
function direct(name: string, paraphrases: string[], plan: Planner): TaskTemplate {
  const build: TaskTemplate['build'] = (draw, { profile }) => {
    const { scene, act, mistakes, values, entities } = plan(draw);
    return {
      rows: rowsOf(scene, draw, profile),
      values: { id: scene.booking, hotel: scene.hotel, ...values },
      entities: entities ?? [],
      oracle: [act],
      mistakes,
    };
  };
  return { name, difficulty: 1, paraphrases, build };
}

/** A template that is solved by a search for the description, then a call. */
function found(name: string, paraphrases: string[], by: 'booking' | 'hotel', plan: Planner): TaskTemplate {
  const build: TaskTemplate['build'] = (draw, { profile }) => {
    const { scene, act, mistakes, values, entities } = plan(draw);
    const { guest, city } = scene;
    const rows = rowsOf(scene, draw, profile);
    const inCity = new Set(idsIn(rows.hotels, (row) => row[2] === city));
    const [id, matches] =
      by === 'hotel'
        ? [scene.hotel, [...inCity].sort()]
        : [
            scene.booking,
            idsIn(rows.bookings, (row) => row[2] === guest && inCity.has(String(row[1]))).sort(),
          ];
    const find =
      by === 'hotel'
        ? { name: 'search_hotels', arguments: { city } }
        : { name: 'find_bookings', arguments: { guest, city } };
    return {
      rows,
      values: { guest, city, name: scene.hotelName, ...values },
      entities: [city, ...(by === 'hotel' ? [] : [guest]), ...(entities ?? [])],
      oracle: [...searchCalls(profile, find, matches, id), act],
      mistakes,
    };
  };
  return { name, difficulty: 2, paraphrases, build };
}

function idsIn(rows: readonly Row[] = [], has: (row: Row) => boolean): string[] {
  return rows.filter(has).map(([id]) => String(id));
}

const call = (name: string, id: string, rest: ToolCall['arguments'] = {}): ToolCall => ({
  name,
  arguments: { id, ...rest },
});

const statusTools = ['cancel_booking', 'confirm_booking', 'check_in'];
const otherThan = (tool: string, tools: readonly string[]) => tools.filter((name) => name !== tool);

function changeStatus(draw: Draw, tool: string, options: SubjectOptions = {}): Plan {
  const scene = drawScene(draw, options);
  return { scene, act: call(tool, scene.booking), mistakes: { tools: otherThan(tool, statusTools) } };
}

function changeDate(draw: Draw, elsewhere = 0): Plan {
  const date = drawDay(draw);
  const scene = drawScene(draw, { not: { date }, elsewhere });
  return {
    scene,
    act: call('change_date', scene.booking, { date }),
    mistakes: { tools: ['add_note', 'check_in'] },
    values: { date },
    entities: [date],
  };
}

function changeRoom(draw: Draw, elsewhere = 0): Plan {
  const room = draw.pick(rooms);
  const scene = drawScene(draw, { not: { room }, elsewhere });
  return {
    scene,
    act: call('change_room', scene.booking, { room }),
    mistakes: { tools: ['add_note', 'confirm_booking'], argument: { name: 'room', values: rooms } },
    values: { room },
  };
}

function addNote(draw: Draw, options: SubjectOptions = {}): Plan {
  const scene = drawScene(draw, options);
  const note = draw.pick(wishes);
  return {
    scene,
    act: call('add_note', scene.booking, { note }),
    mistakes: { tools: ['change_room', 'check_in'], argument: { name: 'note', values: wishes } },
    values: { note },
  };
}

function bookRoom(draw: Draw): Plan {
  const scene = drawScene(draw);
  const [guest, room, date, nights] = [draw.pick(guests), draw.pick(rooms), drawDay(draw), 1 + draw.below(7)];
  return {
    scene,
    act: { name: 'book_room', arguments: { hotel: scene.hotel, guest, room, date, nights } },
    mistakes: { tools: ['rate_hotel'], argument: { name: 'room', values: rooms } },
    values: { guest, room, date, nights },
    entities: [guest, room, date, nights],
  };
}

function rate(draw: Draw, options: SubjectOptions = {}): Plan {
  const scene = drawScene(draw, options);
  const stars = 1 + draw.below(5);
  return {
    scene,
    act: { name: 'rate_hotel', arguments: { hotel: scene.hotel, stars } },
    mistakes: { tools: ['check_in'], rows: scene.dearer },
    values: { stars },
    entities: [stars],
  };
}

/** The template has few values to combine, so the key's number decides the split. */
const undivided = (plan: Plan): Plan => ({ ...plan, entities: [] });

export const templates: readonly TaskTemplate[] = [
  direct(
    'cancel_booking',
    [
      'Cancel {id}.',
      'Please cancel the booking {id}.',
      'Nobody will come for {id}, cancel it.',
      '{id} is off; cancel it.',
    ],
    (draw) => changeStatus(draw, 'cancel_booking'),
  ),
  direct(
    'confirm_booking',
    [
      'Confirm {id}.',
      'Please confirm the booking {id}.',
      'The money for {id} came, confirm it.',
      '{id} is fine; confirm it.',
    ],
    (draw) => changeStatus(draw, 'confirm_booking', { status: 'pending' }),
  ),
  direct(
    'check_in',
    [
      'Check in {id}.',
      'The guest of {id} arrived, check in.',
      'Please do the check in of {id}.',
      'Check the guest of {id} in.',
    ],
    (draw) => changeStatus(draw, 'check_in'),
  ),
  direct(
    'change_date',
    [
      'Move {id} to {date}.',
      'Let {id} begin on {date}.',
      'The first day of {id} is now {date}.',
      'Change the date of {id} to {date}.',
    ],
    (draw) => changeDate(draw),
  ),
  direct(
    'change_room',
    ['Change {id} to a {room} room.', 'Give {id} a {room} room.', 'The guest of {id} prefers a {room} room.'],
    (draw) => changeRoom(draw),
  ),
  direct(
    'change_nights',
    ['Change {id} to {nights} nights.', '{id} is for {nights} nights.', 'Make it {nights} nights for {id}.'],
    (draw) => {
      const scene = drawScene(draw);
      const nights = 1 + draw.below(7);
      return {
        scene,
        act: call('change_nights', scene.booking, { nights }),
        mistakes: { tools: ['check_in', 'confirm_booking'] },
        values: { nights },
      };
    },
  ),
  direct(
    'change_guest',
    [
      'Pass {id} on to {guest}.',
      '{guest} takes over the booking {id}.',
      'Change the guest of {id} to {guest}.',
    ],
    (draw) => {
      const guest = draw.pick(guests);
      const scene = drawScene(draw, { not: { guest } });
      return {
        scene,
        act: call('change_guest', scene.booking, { guest }),
        mistakes: { tools: ['add_note', 'check_in'], argument: { name: 'guest', values: guests } },
        values: { guest },
        entities: [guest],
      };
    },
  ),
  direct(
    'add_note',
    ['Note {note} on {id}.', 'The guest of {id} asks for {note}, note it.', 'Add the note {note} to {id}.'],
    (draw) => addNote(draw),
  ),
  direct(
    'rate_hotel',
    [
      'Rate {hotel} with {stars} stars.',
      '{hotel} gets {stars} stars.',
      'Give {hotel} a rating of {stars} stars.',
    ],
    (draw) => undivided(rate(draw)),
  ),
  direct(
    'book_room',
    [
      'Book a {room} room at {hotel} for {guest} on {date} for {nights} nights.',
      '{guest} wants a {room} room at {hotel} on {date}, {nights} nights.',
    ],
    bookRoom,
  ),
  found(
    'cancel_found',
    [
      'Cancel the booking of {guest} in {city}.',
      '{guest} does not travel to {city}, cancel the booking.',
      'Find the booking of {guest} in {city} and cancel it.',
    ],
    'booking',
    (draw) => changeStatus(draw, 'cancel_booking', { elsewhere: draw.below(3) }),
  ),
  found(
    'date_found',
    [
      'Move the booking of {guest} in {city} to {date}.',
      '{guest} arrives in {city} on {date} instead, change the date.',
    ],
    'booking',
    (draw) => changeDate(draw, draw.below(3)),
  ),
  found(
    'room_found',
    [
      'Change the booking of {guest} in {city} to a {room} room.',
      '{guest} prefers a {room} room in {city}.',
      'Give {guest} a {room} room in {city}.',
    ],
    'booking',
    (draw) => {
      const plan = changeRoom(draw, draw.below(3));
      return { ...plan, entities: [plan.act.arguments.room as string] };
    },
  ),
  found(
    'book_found',
    [
      'Book a {room} room at the {name} in {city} for {guest} on {date} for {nights} nights.',
      '{guest} wants a {room} room at the {name} in {city} on {date}, {nights} nights.',
    ],
    'hotel',
    bookRoom,
  ),
  found(
    'rate_found',
    [
      'Rate the {name} in {city} with {stars} stars.',
      'The {name} in {city} gets {stars} stars.',
      'Give the {name} in {city} a rating of {stars} stars.',
    ],
    'hotel',
    (draw) => {
      const plan = rate(draw);
      return { ...plan, entities: [plan.scene.hotelName, ...(plan.entities ?? [])] };
    },
  ),
  found(
    'rate_cheapest',
    [
      'Rate the cheapest hotel in {city} with {stars} stars.',
      'The cheapest hotel in {city} gets {stars} stars.',
    ],
    'hotel',
    (draw) => rate(draw, { dearerHotel: true }),
  ),
  found(
    'cancel_or_note',
    [
      'If the booking of {guest} in {city} is pending, cancel it, else note {note} on it.',
      'Cancel the booking of {guest} in {city} if it is pending; if it is confirmed, note {note} on it.',
    ],
    'booking',
    (draw) => {
      const plan = addNote(draw);
      const cancel = call('cancel_booking', plan.scene.booking);
      const [act, branch] = plan.scene.status === 'pending' ? [cancel, plan.act] : [plan.act, cancel];
      return {
        ...plan,
        act,
        mistakes: { tools: ['confirm_booking', 'check_in'], branch },
        entities: [plan.values?.note as string],
      };
    },
  ),
];
