// Chooses the faults of a seed's run, their moments and their durations. Consecutive seeds share a shuffled deck of all faults, so that
// together they include every fault.
import type { Fault, Need } from './faults/fault.js';
import { type Random, seededRandom } from './random.js';
import type { StoreKind } from './surroundings.js';

export interface Strike {
  fault: Fault;
  /** The fault starts `delayMs` after the commit of this step; −1 means before the base model is committed. */
  afterStep: number;
  delayMs: number;
  /** A fault that does not stop the run ends at this step at the latest, because then the next fault is due. */
  untilStep: number;
  /** 0 if the fault takes only a moment. */
  lastsMs: number;
  seed: number;
}

export interface Schedule {
  store: StoreKind;
  /** Number of nodes of the stack. */
  nodes: number;
  strikes: Strike[];
}

export interface ScheduleOptions {
  seed: number;
  faults: readonly Fault[];
  /** Number of steps of the run. */
  steps: number;
  strikes: number;
  /** The kinds of store to draw from if the faults need no particular one. */
  stores: readonly StoreKind[];
  longestOutageMs: number;
  longestDelayMs: number;
}

export function scheduleOf(options: ScheduleOptions): Schedule {
  const { seed, steps, longestDelayMs, longestOutageMs } = options;
  const random = seededRandom(seed * 7919 + 17);
  const drawn = handOf(options);
  const wants = (store: Need & StoreKind): boolean => drawn.some(({ needs }) => needs.includes(store));
  const store = wants('s3') ? 's3' : wants('directory') ? 'directory' : random.pick(options.stores);
  // Each fault has its own part of the run, so that the run is still open. The last steps are for the recovery from the last fault.
  const part = Math.max(1, steps - 4) / drawn.length;
  const nodes = drawn.some(({ needs }) => needs.includes('second-node')) ? 2 : 1;
  const strikes = drawn.map((fault, index) => ({
    fault: fits(fault, store) ? fault : replacement(options, store, nodes, random.below(1e6)),
    afterStep: Math.floor((index + random.next()) * part) - 1,
    untilStep: Math.floor((index + 1) * part),
    delayMs: Math.round(random.next() * longestDelayMs),
    lastsMs: Math.round((0.2 + 0.8 * random.next()) * longestOutageMs),
    seed: random.below(2 ** 31),
  }));
  return {
    ...{ store, nodes },
    strikes: strikes.map((strike) => (strike.fault.lasts ? strike : { ...strike, lastsMs: 0 })),
  };
}

/**
 * A deck consists of as many hands as are needed for all faults; each seed takes one hand. Faults that need a directory are at one end of
 * the deck and those that need S3 at the other, so that no hand mixes them if there are enough other faults in between.
 */
function handOf({ seed, faults, strikes }: ScheduleOptions): Fault[] {
  const hands = Math.ceil(faults.length / strikes);
  const random = seededRandom(Math.floor(seed / hands) * 104_729 + 5);
  const asking = (need: Need): Fault[] => faults.filter(({ needs }) => needs.includes(need));
  const [ofDirectories, ofS3] = [asking('directory'), asking('s3')];
  const others = faults.filter((fault) => !ofDirectories.includes(fault) && !ofS3.includes(fault));
  const more = Array.from({ length: hands * strikes - faults.length }, () =>
    random.pick(others.length > 0 ? others : faults),
  );
  const deck = [ofDirectories, [...others, ...more], ofS3].flatMap((part) => shuffled(part, random));
  const order = shuffled([...Array(hands).keys()], random);
  const hand = order[seed % hands] ?? 0;
  return shuffled(deck.slice(hand * strikes, (hand + 1) * strikes), random);
}

function shuffled<T>(items: readonly T[], random: Random): T[] {
  const deck = [...items];
  for (let last = deck.length - 1; last > 0; last--) {
    const other = random.below(last + 1);
    [deck[last], deck[other]] = [deck[other] as T, deck[last] as T];
  }
  return deck;
}

/** A run has only one store, so a fault that needs the other kind does not fit. */
function fits({ needs }: Fault, store: StoreKind): boolean {
  return !needs.includes(store === 's3' ? 'directory' : 's3');
}

function replacement({ faults }: ScheduleOptions, store: StoreKind, nodes: number, draw: number): Fault {
  const fitting = faults.filter(
    (fault) => fits(fault, store) && (nodes > 1 || !fault.needs.includes('second-node')),
  );
  return fitting[draw % fitting.length] as Fault;
}
