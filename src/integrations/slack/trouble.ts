// How long a thread tries to send, and when it tries again. While nothing gets through, the time limit counts from the first failure, not
// from each message. After that limit, each queued message gets one attempt after the current pause, and no waiting time of its own.
import { backoffMs } from '../../base/backoff.js';
import { pause } from '../../base/abortable.js';
import { SlackCallFailed } from './slack-failure.js';

export interface Patience {
  giveUpAfterMs: number;
  /** Pauses between attempts double, from `firstPauseMs` to `longestPauseMs`. */
  firstPauseMs: number;
  longestPauseMs: number;
  /** Pause between attempts if only a person can fix the failure. */
  restMs: number;
}

const jitter = 0.25;

export class Trouble {
  /** Time of the first failure, in milliseconds of `performance.now()`; null while calls succeed. */
  private since: number | null = null;
  private failures = 0;
  private notBefore = 0;
  private lastFailure: SlackCallFailed | null = null;

  constructor(
    private readonly patience: Patience,
    private readonly stop: AbortSignal,
  ) {}

  /** The newest failure since the last success. */
  get last(): SlackCallFailed | null {
    return this.lastFailure;
  }

  /** True while no call should be made. */
  get pausing(): boolean {
    return performance.now() < this.notBefore;
  }

  over(): void {
    this.since = null;
    this.failures = 0;
    this.notBefore = 0;
    this.lastFailure = null;
  }

  note(error: SlackCallFailed): void {
    const now = performance.now();
    this.since ??= now;
    this.failures += 1;
    this.lastFailure = error;
    this.notBefore = now + this.pauseAfter(error);
  }

  /**
   * Tries until `attempt` succeeds, then returns null. Returns the failure when the time limit is reached, or when Slack refuses the call
   * for good. Throws errors that are not Slack's.
   */
  async outlasted(attempt: () => Promise<void>): Promise<SlackCallFailed | null> {
    const begun = performance.now();
    for (;;) {
      const pauseMs = this.notBefore - performance.now();
      if (this.lastFailure !== null && pauseMs > this.longestWait(begun)) return this.lastFailure;
      await pause(pauseMs, this.stop);
      try {
        await attempt();
        this.over();
        return null;
      } catch (error) {
        if (!(error instanceof SlackCallFailed)) throw error;
        if (error.failure.kind === 'refused') return error;
        this.note(error);
      }
      if (this.leftMs(begun) <= 0) return this.lastFailure;
    }
  }

  private leftMs(begun: number): number {
    return (this.since ?? begun) + this.patience.giveUpAfterMs - performance.now();
  }

  /** The longest pause that is waited out: Slack may ask for hours. */
  private longestWait(begun: number): number {
    const { longestPauseMs, restMs } = this.patience;
    return Math.max(this.leftMs(begun), longestPauseMs * (1 + jitter), restMs);
  }

  private pauseAfter({ failure }: SlackCallFailed): number {
    if (failure.kind === 'limited') return failure.pauseMs;
    const { firstPauseMs, longestPauseMs, restMs } = this.patience;
    if (failure.kind === 'lasting') return restMs;
    const pauseMs = backoffMs(this.failures, [firstPauseMs, longestPauseMs]);
    // Random, so that runs that lost Slack at the same time do not return at the same time.
    return pauseMs * (1 + jitter * (2 * Math.random() - 1));
  }
}
