// What an attempt has under way, what its death would cost, and what had failed before it worked: kept in memory, sent to the server with
// each heartbeat, and written to the attempt's records if it is worth a record (ft/*).
import { Context } from '@temporalio/activity';
import { type Restored, rounded } from '../../policy/attended.js';
import type { LostWork, Recovery, RecoveryCause } from '../../spec/records/attempt-records.js';

/** A part of an attempt's work that can be lost alone: an episode, an update. */
export interface WorkUnit {
  sampled(tokens: number): void;
  /** All work so far can be reused by any later attempt. */
  kept(): void;
  /** The unit waits for an environment or the store, until it samples or ends. */
  waits(): void;
  end(): void;
}

/** A failure with no work after it yet. `failedAt`: by `performance.now()`, negative if another process failed. */
export type Failure = Omit<Recovery, 'down_seconds' | 'restore' | 'replay'> & { failedAt: number };

/** What the next attempt receives. */
export interface AttemptSnapshot {
  /** This machine's clock, milliseconds since 1970. */
  at: number;
  lost: LostWork;
  /** Recoveries that are in no record yet. */
  recoveries: Recovery[];
  waited_seconds: number;
}

/** What a failed attempt left in this process's memory. `failure`: null if a person ended it. */
export interface EndedAttempt extends Pick<AttemptSnapshot, 'recoveries' | 'waited_seconds'> {
  failure: Failure | null;
}

export const nothingLost: LostWork = { seconds: 0, tokens: 0, episodes: 0 };

interface Unit {
  what: 'episode' | 'update';
  since: number;
  tokens: number;
  waiting: boolean;
}

export class AttemptAccount {
  private readonly units = new Set<Unit>();
  private carried: Recovery[] = [];
  private failure: Failure | null = null;
  private explain: ((restored: Restored) => Promise<Recovery>) | null = null;
  private restorations: Restored[] = [];
  private workedAt: number | null = null;
  private waitingSince: number | null = null;
  private waitedMs = 0;
  /** The engine process that last worked for the attempt; null before there is one. */
  engine: string | null = null;

  /**
   * Call once, before the work: what ended the attempt before, what that one had not recorded, and a function that explains why a state had
   * to be restored without a known failure.
   */
  begins(
    { failure, recoveries, waited_seconds }: EndedAttempt,
    explain: (restored: Restored) => Promise<Recovery>,
  ): void {
    this.failure = failure;
    this.carried = recoveries;
    this.waitedMs = waited_seconds * 1000;
    this.explain = explain;
  }

  /** Work goes on: the failure is over. */
  begin(what: Unit['what']): WorkUnit {
    this.workedAt ??= performance.now();
    const unit: Unit = { what, since: performance.now(), tokens: 0, waiting: false };
    this.units.add(unit);
    this.clock();
    const waiting = (now: boolean): void => {
      unit.waiting = now;
      this.clock();
    };
    return {
      sampled: (tokens) => {
        unit.tokens += tokens;
        waiting(false);
      },
      kept: () => {
        unit.since = performance.now();
        unit.tokens = 0;
      },
      waits: () => waiting(true),
      end: () => {
        this.units.delete(unit);
        this.clock();
      },
    };
  }

  /** The work under way failed within the attempt, and begins again. `event` names what happened. */
  fails(cause: RecoveryCause, event: string): void {
    this.carried = this.explained;
    this.restorations = [];
    this.failure = { cause, event, lost: this.lost, detection_seconds: 0, failedAt: performance.now() };
    this.units.clear();
    this.workedAt = null;
  }

  /** The work under way has left its record. */
  finished(): void {
    this.units.clear();
    this.clock();
  }

  uses(incarnation: string): void {
    this.engine = incarnation;
  }

  restored(restored: Restored): void {
    this.restorations.push(restored);
  }

  /** What could not be reused if the attempt ended now. */
  get lost(): LostWork {
    const now = performance.now();
    const units = [...this.units];
    const ages = units.reduce((sum, { since }) => sum + now - since, 0);
    return {
      seconds: rounded(ages / 1000 / Math.max(1, units.length)),
      tokens: units.reduce((sum, { tokens }) => sum + tokens, 0),
      episodes: units.filter(({ what }) => what === 'episode').length,
    };
  }

  /** True if a failure, a restore or a wait of that length is in no record yet. */
  hasNews(shortestWaitSeconds: number): boolean {
    return (
      this.explained.length > 0 || this.unexplained !== null || this.unrecordedWait >= shortestWaitSeconds
    );
  }

  /** Recoveries that are in no record yet. */
  async recoveries(): Promise<Recovery[]> {
    const restored = this.unexplained;
    if (!restored || !this.explain) return this.explained;
    return [...this.explained, await this.explain(restored)];
  }

  get unrecordedWait(): number {
    const waiting = this.waitingSince === null ? 0 : performance.now() - this.waitingSince;
    return rounded((this.waitedMs + waiting) / 1000);
  }

  /** A record holds them now. */
  recorded(): void {
    this.carried = [];
    this.failure = null;
    this.restorations = [];
    this.waitedMs = 0;
    if (this.waitingSince !== null) this.waitingSince = performance.now();
  }

  /** For the attempt after this one, should it be needed; null before `begins`. */
  get reported(): AttemptSnapshot | null {
    return this.explain && this.snapshot;
  }

  get snapshot(): AttemptSnapshot {
    const { lost, unrecordedWait } = this;
    return { at: Date.now(), lost, recoveries: this.explained, waited_seconds: unrecordedWait };
  }

  private get explained(): Recovery[] {
    if (!this.failure) return this.carried;
    const { failedAt, ...failure } = this.failure;
    const down_seconds = rounded(((this.workedAt ?? performance.now()) - failedAt) / 1000);
    return [...this.carried, { ...failure, down_seconds, ...this.restoredInAll }];
  }

  /** A node that shares a run's steps follows each of its updates from the state that it holds: that is no failure. */
  private get unexplained(): Restored | null {
    const restored = this.failure ? null : this.restoredInAll;
    return restored?.restore.from === 'held' ? null : restored;
  }

  private get restoredInAll(): Restored | null {
    const [first, ...more] = this.restorations;
    return first ? more.reduce(together, first) : null;
  }

  /** The clock of waiting runs while every unit waits. */
  private clock(): void {
    const units = [...this.units];
    const waits = units.length > 0 && units.every(({ waiting }) => waiting);
    if (waits) this.waitingSince ??= performance.now();
    else if (this.waitingSince !== null) {
      this.waitedMs += performance.now() - this.waitingSince;
      this.waitingSince = null;
    }
  }
}

const accounts = new WeakMap<Context, AttemptAccount>();

/** Account of the attempt that runs here. */
export function currentAccount(): AttemptAccount {
  return accountOf(Context.current());
}

export function accountOf(context: Context): AttemptAccount {
  const account = accounts.get(context) ?? new AttemptAccount();
  accounts.set(context, account);
  return account;
}

/** Sum of two restores in one attempt; where it came from is the last one's. */
function together(one: Restored, other: Restored): Restored {
  return {
    restore: {
      ...other.restore,
      bytes: one.restore.bytes + other.restore.bytes,
      seconds: rounded(one.restore.seconds + other.restore.seconds),
    },
    replay: {
      steps: one.replay.steps + other.replay.steps,
      seconds: rounded(one.replay.seconds + other.replay.seconds),
    },
  };
}
