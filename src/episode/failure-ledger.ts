// Which failures of an environment are charged to the episode (R25), and which try comes next (R26): a function of the failures in their
// order, so that an attempt that takes an episode up knows what the one before it knew.
import type { EnvironmentError } from '../environments/environment.js';
import type { JournaledFailure, Place } from './turn-journal.js';

/**
 * Deaths of the server under the same call that are not charged. After them the episode is played alone: then it is charged with the next
 * one (R25).
 */
const unchargedDeaths = 2;

export class FailureLedger {
  /** By reason, charged or not. */
  readonly failures: Record<string, number> = {};
  private chargedCount = 0;
  private readonly tries = new Map<Place, number>();
  private readonly deaths = new Map<Place, number>();

  constructor(past: readonly JournaledFailure[]) {
    for (const failure of past) this.add(failure);
  }

  get charged(): number {
    return this.chargedCount;
  }

  /** Whether the server has died so often under a call of this episode that the next play must be alone on it. */
  get suspect(): boolean {
    return [...this.deaths.values()].some((count) => count >= unchargedDeaths);
  }

  tryAt(place: Place): number {
    return this.tries.get(place) ?? 0;
  }

  /** Returns whether the failure is charged to the episode. */
  add(failure: JournaledFailure): boolean {
    const { place, reason } = failure;
    this.failures[reason] = (this.failures[reason] ?? 0) + 1;
    this.tries.set(place, this.tryAt(place) + 1);
    const isCharged = this.isCharged(failure);
    if (isCharged) this.chargedCount += 1;
    return isCharged;
  }

  private isCharged({ kind, reason, place }: JournaledFailure): boolean {
    if (kind === 'failed') return true;
    // A failure to connect says nothing about this episode; a server that dies on its call may.
    if (reason === 'connect' || reason === 'capacity') return false;
    const count = (this.deaths.get(place) ?? 0) + 1;
    this.deaths.set(place, count);
    return count > unchargedDeaths;
  }
}

export function failureOf({ kind, reason }: EnvironmentError, place: Place): JournaledFailure {
  return { place, kind, reason };
}
