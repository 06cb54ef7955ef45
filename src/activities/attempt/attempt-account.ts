// Tracks for one attempt: its work in progress, what would be lost if it died now, and the failures before it. The account is kept in
// memory, sent to the server with each heartbeat, and written to the attempt's records if there is something to report (ft/*).
import { Context } from '@temporalio/activity';
import { type Restored, rounded } from '../../policy/attempt-scope.js';
import type { LostWork, Recovery, RecoveryCause } from '../../spec/records/attempt-records.js';

/** A part of an attempt's work that can be lost on its own: an episode or an update. */
export interface WorkUnit {
  sampled(tokens: number): void;
  /** A later attempt can reuse all work done so far. */
  kept(): void;
  /** The unit waits for an environment or the store; the wait ends when the unit samples again or ends. */
  waits(): void;
  end(): void;
}

/**
 * A failure after which work has not begun again yet. `failedAt` is on the clock of `performance.now()`; it is negative if an earlier
 * process failed.
 */
export type Failure = Omit<Recovery, 'down_seconds' | 'restore' | 'replay'> & { failedAt: number };

/** State that the heartbeat passes to the next attempt. */
export interface AttemptSnapshot {
  /** This machine's clock, milliseconds since 1970. */
  at: number;
  lost: LostWork;
  /** Recoveries that no record contains yet. */
  recoveries: Recovery[];
  waited_seconds: number;
}

/** State of a failed attempt, kept in this process's memory. `failure` is null if a person ended the attempt. */
export interface EndedAttempt extends Pick<AttemptSnapshot, 'recoveries' | 'waited_seconds'> {
  failure: Failure | null;
}

export const nothingLost: LostWork = { seconds: 0, tokens: 0, episodes: 0 };

interface Unit {
  what: 'episode' | 'update';
  since: number;
  tokens: number;
  waiting: boolean;
  /** True if a later attempt can continue the unit, not only begin it again. */
  kept: boolean;
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
  /** The engine process that last worked for this attempt; null before the first. */
  engine: string | null = null;

  /**
   * Call once, before the work begins. `EndedAttempt` says how the previous attempt ended and what it had not recorded. `explain` finds the
   * cause of a restore for which no failure is known.
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

  /**
   * Starts a unit of work; this ends the downtime of an earlier failure. `kept`: an earlier attempt left work that this one continues, and
   * that a later one can continue again.
   */
  begin(what: Unit['what'], kept = false): WorkUnit {
    this.workedAt ??= performance.now();
    const unit: Unit = { what, since: performance.now(), tokens: 0, waiting: false, kept };
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
        // A unit that has sampled no token keeps nothing but its beginning.
        unit.kept ||= unit.tokens > 0;
        unit.tokens = 0;
      },
      waits: () => waiting(true),
      end: () => {
        this.units.delete(unit);
        this.clock();
      },
    };
  }

  /** The work in progress failed inside this attempt and starts over. `event` names the failure. */
  fails(cause: RecoveryCause, event: string): void {
    this.carried = this.explained;
    this.restorations = [];
    this.failure = { cause, event, lost: this.lost, detection_seconds: 0, failedAt: performance.now() };
    this.units.clear();
    this.workedAt = null;
  }

  /** The work in progress has been recorded. */
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

  /** Work that would be lost if the attempt ended now. */
  get lost(): LostWork {
    const now = performance.now();
    const units = [...this.units];
    const ages = units.reduce((sum, { since }) => sum + now - since, 0);
    return {
      seconds: rounded(ages / 1000 / Math.max(1, units.length)),
      tokens: units.reduce((sum, { tokens }) => sum + tokens, 0),
      episodes: units.filter(({ what, kept }) => what === 'episode' && !kept).length,
    };
  }

  /** True if no record contains yet: a failure, a restore, or waits of at least `shortestWaitSeconds` in all. */
  hasNews(shortestWaitSeconds: number): boolean {
    return (
      this.explained.length > 0 || this.unexplained !== null || this.unrecordedWait >= shortestWaitSeconds
    );
  }

  /** Recoveries that no record contains yet. */
  async recoveries(): Promise<Recovery[]> {
    const restored = this.unexplained;
    if (!restored || !this.explain) return this.explained;
    return [...this.explained, await this.explain(restored)];
  }

  get unrecordedWait(): number {
    const waiting = this.waitingSince === null ? 0 : performance.now() - this.waitingSince;
    return rounded((this.waitedMs + waiting) / 1000);
  }

  /** Call after a record with these recoveries was written. */
  recorded(): void {
    this.carried = [];
    this.failure = null;
    this.restorations = [];
    this.waitedMs = 0;
    if (this.waitingSince !== null) this.waitingSince = performance.now();
  }

  /** Sent with the heartbeat for a possible next attempt; null before `begins`. */
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

  /**
   * The restores of an attempt without a failure. Null if the engine held a state to start from: a node that shares a run's steps applies
   * each update to the state it holds, and that is no fault.
   */
  private get unexplained(): Restored | null {
    const restored = this.failure ? null : this.restoredInAll;
    return restored?.restore.from === 'held' ? null : restored;
  }

  private get restoredInAll(): Restored | null {
    const [first, ...more] = this.restorations;
    return first ? more.reduce(together, first) : null;
  }

  /** Adds to the waiting time only while every unit waits. */
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

export function currentAccount(): AttemptAccount {
  return accountOf(Context.current());
}

export function accountOf(context: Context): AttemptAccount {
  const account = accounts.get(context) ?? new AttemptAccount();
  accounts.set(context, account);
  return account;
}

/** Adds up two restores of one attempt; the result names the origin of the later restore. */
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
