// What a worker's process knows of its own past, and of the process that served its folder before.
import type { EndedAttempt } from './attempt-account.js';
import { NewestEntries } from '../../base/newest-entries.js';

export interface Predecessor {
  /** As `ProcessLife.identity`. */
  identity: string;
  /** When it was last alive, and when this process was started in its place: of this machine's clock, milliseconds since 1970. */
  aliveAt: number;
  noticedAt: number;
  /** It was told to end, and did. */
  left: boolean;
}

/** Where a process runs: a worker's name, which it keeps when it is started again, its machine, and its number there. */
export interface ProcessPlace {
  name: string;
  host: string;
  pid: number;
}

export class ProcessLife {
  readonly #ended = new NewestEntries<EndedAttempt>();
  readonly #executions = new NewestEntries<true>();
  readonly #runs = new NewestEntries<true>();
  /** The engine process that a run has used here last. */
  readonly engines = new NewestEntries<string>();

  constructor(
    readonly process: ProcessPlace,
    readonly predecessor: Predecessor | null = null,
    /** What it is called when its predecessor was killed. */
    readonly restart: 'worker_restart' | 'orchestrator_restart' = 'worker_restart',
  ) {}

  /** The worker on its machine, whichever process that is: `{name}@{host}` */
  get node(): string {
    return `${this.process.name}@${this.process.host}`;
  }

  /** `{name}@{host} pid {pid}` */
  get identity(): string {
    return `${this.node} pid ${this.process.pid}`;
  }

  /** Answers whether the execution of an activity was known to this process. */
  noteExecution(execution: string): boolean {
    return wasKnown(this.#executions, execution);
  }

  /** Answers whether the run was known to this process. */
  noteRun(run: string): boolean {
    return wasKnown(this.#runs, run);
  }

  ended(activity: string, attempt: EndedAttempt): void {
    this.#ended.set(activity, attempt);
  }

  /** What its last attempt here has left; it is told once. */
  takeEnded(activity: string): EndedAttempt | null {
    return this.#ended.take(activity) ?? null;
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
