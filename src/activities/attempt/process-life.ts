// What a worker's process knows of its own past, and of the process that served its folder before.
import type { EndedAttempt } from './attempt-account.js';
import { NewestEntries } from '../../base/newest-entries.js';

export interface Predecessor {
  /** As `ProcessLife.identity`. */
  identity: string;
  /** When it was last alive, and when this process was started in its place: by this machine's clock, milliseconds since 1970. */
  aliveAt: number;
  noticedAt: number;
  /** It was asked to end, and did. */
  left: boolean;
}

/** Where a process runs: a worker's name, which it keeps over restarts, its machine, and its process id there. */
export interface ProcessPlace {
  name: string;
  host: string;
  pid: number;
}

export class ProcessLife {
  private readonly endedAttempts = new NewestEntries<EndedAttempt>();
  private readonly executions = new NewestEntries<true>();
  private readonly runs = new NewestEntries<true>();
  /** The engine process that each run used here last. */
  readonly engines = new NewestEntries<string>();

  constructor(
    readonly process: ProcessPlace,
    readonly predecessor: Predecessor | null = null,
    /** The cause to report when its predecessor was killed. */
    readonly restart: 'worker_restart' | 'orchestrator_restart' = 'worker_restart',
  ) {}

  /** The worker on its machine, independent of the process: `{name}@{host}` */
  get node(): string {
    return `${this.process.name}@${this.process.host}`;
  }

  /** `{name}@{host} pid {pid}` */
  get identity(): string {
    return `${this.node} pid ${this.process.pid}`;
  }

  /** Returns whether this process knew the execution of an activity. */
  noteExecution(execution: string): boolean {
    return wasKnown(this.executions, execution);
  }

  /** Returns whether this process knew the run. */
  noteRun(run: string): boolean {
    return wasKnown(this.runs, run);
  }

  ended(activity: string, attempt: EndedAttempt): void {
    this.endedAttempts.set(activity, attempt);
  }

  /** What the activity's last attempt here has left; returned once. */
  takeEnded(activity: string): EndedAttempt | null {
    return this.endedAttempts.take(activity) ?? null;
  }
}

/** `ProcessLife.node` of an identity in a record. */
export function nodeOf(identity: string): string {
  return identity.replace(/ pid \d+$/, '');
}

function wasKnown(known: NewestEntries<true>, name: string): boolean {
  const before = known.get(name) ?? false;
  known.set(name, true);
  return before;
}
