// The interface of a kind of environment, as nodes and the start of a run use it, and what a node provides to all kinds.
import type { Digest } from '../spec/records/parts.js';
import type { Task, ToolSpec } from '../spec/records/task.js';
import type { EnvironmentSpec } from '../spec/run-spec.js';
import type { EnvironmentBackend } from './environment.js';
import type { Semaphore } from './semaphore.js';

/** A session that its server keeps until it is closed. */
export interface KeptSession {
  url: string;
  id: string;
  /** Name of the variable with the server's headers. */
  headers_env?: string;
}

/** Notes that outlive this process, so that the next one can close the sessions that this one leaves. */
export interface SessionNotes {
  /** Resolves when the session is noted; rejects if it cannot be. */
  add(session: KeptSession): Promise<void>;
  /** Asks the server until it answers, for about an hour; then the next process does. Never rejects. */
  close(session: KeptSession, headers: Readonly<Record<string, string>>): Promise<void>;
}

/** What a node provides to all of its environments. */
export interface EnvironmentHost {
  /** Server for specs that name none, and its grading token. */
  url: string | null;
  token?: string;
  /** Sessions that outlive their sockets are noted here. */
  made?: SessionNotes;
  /** A name that no other running process has, and a folder that outlives this process. Absent: nobody cleans up after a kill. */
  owner?: { name: string; folder: string };
  /** Code of a verifier, by its sha256. */
  verifierCode?(sha256: Digest): Promise<string>;
  log?(message: string): void;
  /** Places on a server, shared by all backends there. `most`: at most this many. */
  placesOf(url: string, most?: number): Semaphore;
}

/** Why a run cannot begin, and how to fix it. */
export interface Refusal {
  problem: string;
  fix: string;
}

/** What distinguishes an environment from others with the same tasks. */
export interface EnvironmentFacts {
  /** The protocol that we use with it. */
  contract: 'openenv/tools' | 'openenv/gym' | 'fleet';
  /** Sorted by name; null if the environment lists none, or only within an episode. */
  tools: readonly ToolSpec[] | null;
  /** Null if the server has no name. */
  name: string | null;
  version: string | null;
  /**
   * How an episode is graded. `grade`: by a frame that asks for the grade. Otherwise the last observation's reward is the grade: `reward`
   * if the first observation already has one, `later_reward` if not. Null if none of the tasks can be opened.
   */
  reward_rule: 'grade' | 'reward' | 'later_reward' | null;
}

interface Asking {
  timeoutMs: number;
  signal: AbortSignal;
}

export interface EnvironmentKind {
  /**
   * Environments with the same `key` share one backend. `callTimeoutMs`: time limit of a call. Throws an Error that names what this process
   * lacks.
   */
  backend(
    spec: EnvironmentSpec,
    callTimeoutMs: number,
    host: EnvironmentHost,
  ): { key: string; create: () => EnvironmentBackend };
  /** Why nobody can play these tasks there; null if no reason is known. `tasks`: the known tasks of this environment. */
  refusal(spec: EnvironmentSpec, tasks: readonly Task[], signal: AbortSignal): Promise<Refusal | null>;
  /** How long the first answer may take, in milliseconds. */
  readonly opensWithinMs: number;
  /** The tools that an episode of the task has. Throws `EnvironmentError`. */
  tools(spec: EnvironmentSpec, task: Task, asking: Asking): Promise<ToolSpec[]>;
  /** `tasks`: tasks of one `env_key`. `fullIsEnough`: facts that need a place may be absent if the server is full. Throws `EnvironmentError`. */
  facts(
    spec: EnvironmentSpec,
    tasks: readonly Task[],
    asking: Asking & { fullIsEnough?: boolean },
  ): Promise<EnvironmentFacts>;
}
