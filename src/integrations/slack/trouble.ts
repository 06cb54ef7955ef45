// How long a thread tries, and when it tries again. While nothing gets through, the limit counts from the beginning of the trouble and not
// from each message: once it is over, each queued message gets one more try, at the end of the next pause, and no wait of its own.
import { backoffMs } from '../../base/backoff.js';
import { pause } from './pause.js';
import { SlackCallFailed } from './slack-failure.js';

export interface Patience {
  giveUpAfterMs: number;
  /** Pauses between tries double from the first to the longest. */
  firstPauseMs: number;
  longestPauseMs: number;
  /** Pause between tries of what only a person can fix. */
  restMs: number;
}

const jitter = 0.25;

export class Trouble {
  private readonly patience: Patience;
  private readonly stop: AbortSignal;
  /** Milliseconds of `performance.now()`; null while all goes well. */
  private since: number | null = null;
  private failures = 0;
  private notBefore = 0;
  private lastFailure: SlackCallFailed | null = null;

  constructor(patience: Patience, stop: AbortSignal) {
    this.patience = patience;
    this.stop = stop;
  }

  /** The newest failure since something last got through. */
  get last(): SlackCallFailed | null {
    return this.lastFailure;
  }

  /** Whether a call may be made now. */
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
   * Tries until it succeeds, and returns null; or until the limit, or a refusal that no later try can change, and returns that failure.
   * Errors that are not Slack's are thrown.
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

  /** Slack may ask for a pause of hours. */
  private longestWait(begun: number): number {
    const { longestPauseMs, restMs } = this.patience;
    return Math.max(this.leftMs(begun), longestPauseMs * (1 + jitter), restMs);
  }

  private pauseAfter({ failure }: SlackCallFailed): number {
    if (failure.kind === 'limited') return failure.pauseMs;
    const { firstPauseMs, longestPauseMs, restMs } = this.patience;
    if (failure.kind === 'lasting') return restMs;
    const pauseMs = backoffMs(this.failures, [firstPauseMs, longestPauseMs]);
    // Several runs that lost Slack at once must not come back at once.
    return pauseMs * (1 + jitter * (2 * Math.random() - 1));
  }
}
