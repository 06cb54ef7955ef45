// What a worker process remembers of its own work, and what it knows of its predecessor, the process that used its folder before.
import type { EndedAttempt } from './attempt-account.js';
import { NewestEntries } from '../../base/newest-entries.js';

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
