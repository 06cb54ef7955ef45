// The ticket office's task templates. All need five or more calls, each with an id that an earlier one returned.
import type { ToolCall } from '../task-row.js';
import type { Profile, Question, Scenario, SceneOptions, TaskTemplate } from '../app.js';
import { searchCalls } from '../paging.js';
import type { Draw } from '../random.js';
import { drawScene, type Scene, type Section, type Show } from './scene.js';
import { codes, feePerSeat, friends } from './tables.js';

interface Plan {
  scene: Scene;
  /** Calls from the search to the last list of sections. */
  find: ToolCall[];
  section: Section;
  seats: string[];
  /** Calls between order and payment, and after the payment. */
  before?: ToolCall[];
  after?: ToolCall[];
  values?: Scenario['values'];
  entities: Scenario['entities'];
  question?: Question;
}

type Planner = (draw: Draw, profile: Profile, made: Made) => Plan;

/** Ids of the order and of its first ticket. */
interface Made {
  order(scene: Scene): string;
  ticket(scene: Scene): string;
}

const idsOf = (scene: Scene, table: string): string[] => (scene.rows[table] ?? []).map(([id]) => String(id));

function template(name: string, paraphrases: string[], plan: Planner): TaskTemplate {
  const build = (draw: Draw, { profile, nextId }: SceneOptions): Scenario => {
    const made: Made = {
      order: (scene) => nextId('ORD', 'orders', idsOf(scene, 'orders')),
      ticket: (scene) => nextId('TKT', 'tickets', idsOf(scene, 'tickets')),
    };
    const planned = plan(draw, profile, made);
    const { scene, find, section, seats, before = [], after = [], values, entities, question } = planned;
    const [seat, second] = seats as [string, string?];
    const order = made.order(scene);
    return {
      rows: scene.rows,
      values: {
        artist: scene.artist,
        city: scene.show.city,
        section: scene.section.name,
        card: scene.card.kind,
        ...values,
      },
      entities,
      oracle: [
        ...find,
        call('list_seats', { section: section.id }),
        call('hold_seats', { seat, ...(second === undefined ? {} : { second }) }),
        call('create_order', { hold: nextId('HLD', 'holds', []) }),
        ...before,
        call('list_cards', {}),
        call('pay_order', { order, card: scene.card.id }),
        ...after,
      ],
      mistakes: { tools: ['show_order', 'cancel_order'], rows: scene.otherCards },
      ...(question ? { question } : {}),
    };
  };
  return { name, difficulty: 3, paraphrases, build };
}

const call = (name: string, args: ToolCall['arguments']): ToolCall => ({ name, arguments: args });
const sectionsOf = (show: Show): ToolCall => call('list_sections', { event: show.id });

/** The search up to the page that shows the last of these events. */
function search({ profile, artist, found }: Scene, ...shows: Show[]): ToolCall[] {
  const first = call('search_events', { query: artist });
  const searches = shows.map(({ id }) => searchCalls(profile, first, found, id));
  return searches.reduce((longest, calls) => (calls.length > longest.length ? calls : longest));
}

const firstFree = ({ free }: Section): string[] => free.slice(0, 1).map(({ id }) => id);

/** The first free seat of the section that the wording names. */
function buyFirst(scene: Scene): Plan {
  const { artist, show, section } = scene;
  return {
    scene,
    find: [...search(scene, show), sectionsOf(show)],
    section,
    seats: firstFree(section),
    entities: [artist, show.city, section.name],
  };
}

function buyPair(scene: Scene): Plan {
  const { free } = scene.section;
  const at = free.findIndex(
    ({ row, number }, i) => free[i + 1]?.row === row && free[i + 1]?.number === number + 1,
  );
  return { ...buyFirst(scene), seats: free.slice(at, at + 2).map(({ id }) => id) };
}

const totalOf = ({ price }: Section, seats: number): number => seats * (price + feePerSeat);

export const templates: readonly TaskTemplate[] = [
  template(
    'buy_first',
    [
      'Buy the first free seat in the {section} for {artist} in {city} with the {card} card.',
      '{artist} plays in {city}: buy the first free {section} seat, pay by {card}.',
    ],
    (draw, profile) => buyFirst(drawScene(draw, profile)),
  ),
  template(
    'buy_in_row',
    [
      'Buy the free seat in row {row} of the {section} for {artist} in {city} with the {card} card.',
      '{artist} plays in {city}: buy the {section} seat that is free in row {row}, pay by {card}.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile, { layout: 'one_in_row' });
      const { free } = scene.section;
      const alone = free.filter(({ row }) => free.filter((other) => other.row === row).length === 1);
      const { id, row } = draw.pick(alone);
      return { ...buyFirst(scene), seats: [id], values: { row } };
    },
  ),
  template(
    'buy_pair',
    [
      'Buy the two free seats side by side in the {section} for {artist} in {city} in one order with the {card} card.',
      '{artist} plays in {city}: buy two {section} seats next to each other in one order, pay by {card}.',
    ],
    (draw, profile) => buyPair(drawScene(draw, profile, { layout: 'one_pair' })),
  ),
  template(
    'buy_cheapest',
    [
      'Buy the first free seat of the cheapest section that is not sold out for {artist} in {city} with the {card} card.',
      '{artist} plays in {city}: buy the first seat of the cheapest section with free seats, pay by {card}.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile, { soldOutCheapest: draw.chance(0.5) });
      const open = scene.show.sections.filter(({ free }) => free.length > 0);
      const section = open.reduce((least, other) => (other.price < least.price ? other : least));
      const entities = [scene.artist, scene.show.city];
      return { ...buyFirst(scene), section, seats: firstFree(section), entities };
    },
  ),
  template(
    'buy_with_code',
    [
      'Buy the first free seat in the {section} for {artist} in {city} with the code {code} and the {card} card.',
      '{artist} plays in {city}: buy the first free {section} seat with the code {code}, pay by {card}.',
    ],
    (draw, profile, made) => {
      const scene = drawScene(draw, profile);
      const code = draw.pick(Object.keys(codes));
      const before = [call('apply_code', { order: made.order(scene), code })];
      return { ...buyFirst(scene), before, values: { code } };
    },
  ),
  template(
    'buy_and_send',
    [
      'Buy the first free seat in the {section} for {artist} in {city} with the {card} card and transfer the ticket to {to}.',
      '{to} wants to hear {artist} in {city}: buy the first free {section} seat by {card}, then transfer the ticket.',
    ],
    (draw, profile, made) => {
      const scene = drawScene(draw, profile);
      const to = draw.pick(friends);
      const after = [call('transfer_ticket', { ticket: made.ticket(scene), to })];
      return { ...buyFirst(scene), after, values: { to } };
    },
  ),
  template(
    'swap_city',
    [
      'Cancel my order for {artist} and buy the first free seat in the {section} in {city} instead, with the {card} card.',
      'I cannot go to my {artist} show: cancel the order, and buy the first free {section} seat in {city} by {card}.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile, { order: true });
      const plan = buyFirst(scene);
      return {
        ...plan,
        find: [call('list_orders', {}), call('cancel_order', { order: scene.order }), ...plan.find],
      };
    },
  ),
  template(
    'first_open_night',
    [
      'Buy the first free seat in the {section} for {artist} in {city}, on the first night on sale that has one, with the {card} card.',
      '{artist} plays in {city} on several nights: buy the first free {section} seat of the first night on sale that has one, pay by {card}.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile, { layout: 'none', laterNight: true });
      const later = scene.later as Show;
      const section = later.sections[0] as Section;
      return {
        ...buyFirst(scene),
        find: [...search(scene, scene.show, later), sectionsOf(scene.show), sectionsOf(later)],
        section,
        seats: firstFree(section),
      };
    },
  ),
  template(
    'pair_and_total',
    [
      'Buy the two free seats side by side in the {section} for {artist} in {city} in one order with the {card} card and say the total alone.',
      '{artist} plays in {city}: buy two {section} seats next to each other in one order by {card}, and say only what they cost in all.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile, { layout: 'one_pair' });
      const value = totalOf(scene.section, 2);
      const { price } = scene.section;
      return {
        ...buyPair(scene),
        question: { value, others: [price, 2 * price, totalOf(scene.section, 1)] },
      };
    },
  ),
  template(
    'cheaper_city',
    [
      'Find the city where the {section} is cheaper for {artist}, {city} or {away}; buy its first free seat with the {card} card and say the total alone.',
      '{artist} plays in {city} and {away}: buy the first free {section} seat where it is cheaper, pay by {card}, and say the total alone.',
    ],
    (draw, profile) => {
      let scene = drawScene(draw, profile);
      const prices = () => [scene.section.price, scene.elsewhere.sections[0]?.price];
      while (new Set(prices()).size < 2) scene = drawScene(draw, profile);
      const { show, elsewhere } = scene;
      const [here, there] = [scene.section, elsewhere.sections[0] as Section];
      const section = here.price < there.price ? here : there;
      const other = section === here ? there : here;
      return {
        ...buyFirst(scene),
        find: [...search(scene, show, elsewhere), sectionsOf(show), sectionsOf(elsewhere)],
        section,
        seats: firstFree(section),
        values: { away: elsewhere.city },
        entities: [scene.artist, ...[show.city, elsewhere.city].sort()],
        question: { value: totalOf(section, 1), others: [section.price, totalOf(other, 1), other.price] },
      };
    },
  ),
];
