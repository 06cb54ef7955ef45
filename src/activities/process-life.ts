// What a worker's process knows of its own past, and of the process that served its folder before.
import type { AttemptSnapshot, Failure } from './attempt-account.js';

export interface Predecessor {
  /** As `ProcessLife.identity`. */
  identity: string;
  /** When it was last alive, and when this process was started in its place: of this machine's clock, milliseconds since 1970. */
  aliveAt: number;
  noticedAt: number;
  /** It was told to end, and did. */
  left: boolean;
}

/** What a failed attempt left in this process's memory. `failure`: null where a person ended it. */
export interface EndedAttempt extends Pick<AttemptSnapshot, 'recoveries' | 'waited_seconds'> {
  failure: Failure | null;
}

/** More than are ever open at once, and few enough to forget those that moved away. */
const maxRemembered = 1_000;

export class ProcessLife {
  readonly #ended = new Map<string, EndedAttempt>();
  readonly #executions = new Set<string>();
  readonly #runs = new Set<string>();
  /** The engine process that a run has used here last. */
  readonly engines = new Map<string, string>();

  constructor(
    /** `{node}@{host} pid {pid}` */
    readonly identity: string,
    readonly predecessor: Predecessor | null = null,
    /** What it is called when its predecessor was killed. */
    readonly restart: 'worker_restart' | 'orchestrator_restart' = 'worker_restart',
  ) {}

  /** False where an execution of an activity is new to this process. */
  hasSeen(execution: string): boolean {
    return remembered(this.#executions, execution);
  }

  /** False where a run is new to this process. */
  hasServed(run: string): boolean {
    return remembered(this.#runs, run);
  }

  ended(activity: string, attempt: EndedAttempt): void {
    this.#ended.set(activity, attempt);
    const oldest = this.#ended.keys().next().value;
    if (this.#ended.size > maxRemembered && oldest !== undefined) this.#ended.delete(oldest);
  }

  /** What its last attempt here has left; it is told once. */
  takeEnded(activity: string): EndedAttempt | null {
    const ended = this.#ended.get(activity) ?? null;
    this.#ended.delete(activity);
    return ended;
  }
}

function remembered(known: Set<string>, name: string): boolean {
  if (known.has(name)) return true;
  known.add(name);
  const oldest = known.values().next().value;
  if (known.size > maxRemembered && oldest !== undefined) known.delete(oldest);
  return false;
}
