// What a worker process remembers of its own work, and what it knows of its predecessor, the process that used its folder before.
import type { EndedAttempt } from './attempt-account.js';
import { NewestEntries } from '../../base/newest-entries.js';
import type { Recovery } from '../../spec/records/attempt-records.js';

export interface Predecessor {
  /** In the form of `ProcessLife.identity`. */
  identity: string;
  /**
   * When the predecessor was last alive (`aliveAt`), and when this process was started in its place (`noticedAt`), in milliseconds since
   * 1970 by this machine's clock.
   */
  aliveAt: number;
  noticedAt: number;
  /** True if the predecessor exited on purpose, because it was asked to. */
  left: boolean;
}

/** Where a process runs: the worker's name, which stays the same over restarts, its machine, and its process id. */
interface ProcessPlace {
  name: string;
  host: string;
  pid: number;
}

export class ProcessLife {
  private readonly endedAttempts = new NewestEntries<EndedAttempt>();
  private readonly executions = new NewestEntries<true>();
  private readonly runs = new NewestEntries<true>();
  /** For each run, the engine process that it last used on this worker. */
  readonly engines = new NewestEntries<string>();
  /** For each run, the lease whose end is the predecessor's departure. */
  private readonly departures = new NewestEntries<string>();
  /** Runs whose records contain the predecessor's departure. */
  private readonly recordedDepartures = new NewestEntries<true>();

  constructor(
    readonly process: ProcessPlace,
    readonly predecessor: Predecessor | null = null,
    /** Cause to report if the predecessor was killed. */
    readonly restart: 'worker_restart' | 'orchestrator_restart' = 'worker_restart',
  ) {}

  /** The worker on its machine, the same for each of its processes: `{name}@{host}` */
  get node(): string {
    return `${this.process.name}@${this.process.host}`;
  }

  /** `{name}@{host} pid {pid}` */
  get identity(): string {
    return `${this.node} pid ${this.process.pid}`;
  }

  /** Notes an activity's execution; returns whether this process already knew it. */
  noteExecution(execution: string): boolean {
    return wasKnown(this.executions, execution);
  }

  /** Notes a run; returns whether this process already knew it. */
  noteRun(run: string): boolean {
    return wasKnown(this.runs, run);
  }

  /**
   * The event under which the end of a drained lease is recorded. If the predecessor left the lease, it is the predecessor's identity, because
   * its attempts are recorded under that name, or null if its departure is already recorded. `node` is the lease's node.
   */
  departureEvent(run: string, lease: string, node: string): string | null {
    if (this.predecessor?.left !== true || node !== this.process.name) return lease;
    const ended = this.departures.get(run) ?? lease;
    this.departures.set(run, ended);
    if (ended !== lease) return lease;
    return this.recordedDepartures.get(run) ? null : this.predecessor.identity;
  }

  /** Call when a record of the run contains these recoveries. */
  recorded(run: string, recoveries: readonly Pick<Recovery, 'cause' | 'event'>[]): void {
    const isDeparture = ({ cause, event }: Pick<Recovery, 'cause' | 'event'>): boolean =>
      cause === 'node_drained' && event === this.predecessor?.identity;
    if (recoveries.some(isDeparture)) this.recordedDepartures.set(run, true);
  }

  ended(activity: string, attempt: EndedAttempt): void {
    this.endedAttempts.set(activity, attempt);
  }

  /** What the activity's last attempt in this process left behind. Only the first call returns it. */
  takeEnded(activity: string): EndedAttempt | null {
    return this.endedAttempts.take(activity) ?? null;
  }
}

/** The `ProcessLife.node` part of an identity found in a record. */
export function nodeOf(identity: string): string {
  return identity.replace(/ pid \d+$/, '');
}

function wasKnown(known: NewestEntries<true>, name: string): boolean {
  const before = known.get(name) ?? false;
  known.set(name, true);
  return before;
}
