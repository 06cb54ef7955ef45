// Shared by the episodes of all kinds of environments: calls run one at a time, and none after a failure or the end; and the grade is checked.
import { episodeReward } from '../rl/episode-reward.js';
import { EnvironmentError, type Grade } from './environment.js';

/** So small that the mean and the variance over a group are finite, too. */
const maxReward = 1e100;

/** The grade for the sum of the rewards. `giver`: subject and verb of a sentence about them. Throws `EnvironmentError` `failed`, `grade`. */
export function gradeOf(
  rewards: readonly number[],
  { success_at, explanation, giver }: { success_at: number; explanation: string; giver: string },
): Grade {
  const value = episodeReward(rewards, success_at);
  if (Math.abs(value) <= maxReward) return { outcome: { status: 'graded', value }, explanation };
  const words = `${giver} the reward ${rewards.join(' + ')}; rewards lie between -1e100 and 1e100`;
  throw new EnvironmentError('failed', 'grade', words);
}

export class ExclusiveCalls {
  #inFlight = false;
  #isBroken = false;
  #isOver = false;

  get inFlight(): boolean {
    return this.#inFlight;
  }

  /** Throws if another call is in flight, or if a call has failed or the episode has ended before. */
  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#isOver || this.#isBroken) throw new Error('the episode has ended; it can only be closed');
    if (this.#inFlight) throw new Error('a call of this episode is still in flight');
    this.#inFlight = true;
    try {
      return await call();
    } catch (error) {
      this.#isBroken = true;
      throw error;
    } finally {
      this.#inFlight = false;
    }
  }

  /** Ends the episode. False if it had ended before. */
  end(): boolean {
    const isFirst = !this.#isOver;
    this.#isOver = true;
    return isFirst;
  }
}
