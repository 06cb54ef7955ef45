// Decides which failures of an environment are charged to the episode (R25), and counts the tries (R26). Both depend only on the failures
// in order, so a later attempt that knows the failures decides the same.
import type { EnvironmentError } from '../environments/environment.js';
import type { JournaledFailure, Place } from './turn-journal.js';

/**
 * This many server deaths under the same call are not charged to the episode. After that, the episode is played alone on the server, and
 * the next death is charged (R25).
 */
const unchargedDeaths = 2;

export class FailureLedger {
  /** Number of failures by reason, charged or not. */
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

  /** True if the server has died so often under one call of this episode that the next play must be alone on the server. */
  get suspect(): boolean {
    return [...this.deaths.values()].some((count) => count >= unchargedDeaths);
  }

  tryAt(place: Place): number {
    return this.tries.get(place) ?? 0;
  }

  /** Adds a failure; returns whether it is charged to the episode. */
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
    // A failed connection need not be this episode's fault; the death of the server during its call may be.
    if (reason === 'connect' || reason === 'capacity') return false;
    const count = (this.deaths.get(place) ?? 0) + 1;
    this.deaths.set(place, count);
    return count > unchargedDeaths;
  }
}

export function failureOf({ kind, reason }: EnvironmentError, place: Place): JournaledFailure {
  return { place, kind, reason };
}
