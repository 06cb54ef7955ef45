// What each kind of environment gives a node and the start of a run, and what a node has for all of them.
import type { Digest } from '../spec/records/parts.js';
import type { Task, ToolSpec } from '../spec/records/task.js';
import type { EnvironmentSpec } from '../spec/run-spec.js';
import type { EnvironmentBackend } from './environment.js';
import type { MadeSessions } from './openenv/made-sessions.js';
import type { ServerFacts } from './openenv/server-facts.js';
import type { Semaphore } from './semaphore.js';

/** What a node has for all of its environments. */
export interface EnvironmentHost {
  /** Server for specs that name none, and its grading token. */
  url: string | null;
  token?: string;
  /** Sessions that outlive their sockets are noted here. */
  made?: MadeSessions;
  /** No other running process has this name; `folder` outlives this one. Absent: nobody cleans up after a kill. */
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
export type EnvironmentFacts = Pick<ServerFacts, 'tools' | 'name' | 'version' | 'reward_rule'> & {
  contract: ServerFacts['contract'] | 'fleet';
};

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
  /** Why nobody can play these tasks there; null while that is not known. `tasks`: those that are known, all of this environment. */
  refusal(spec: EnvironmentSpec, tasks: readonly Task[], signal: AbortSignal): Promise<Refusal | null>;
  /** How long the first answer may take, in milliseconds. */
  readonly opensWithinMs: number;
  /** The tools that an episode of the task has. Throws `EnvironmentError`. */
  tools(spec: EnvironmentSpec, task: Task, asking: Asking): Promise<ToolSpec[]>;
  /** `tasks`: of one `env_key`. `fullIsEnough`: a full server need not tell what takes a place. Throws `EnvironmentError`. */
  facts(
    spec: EnvironmentSpec,
    tasks: readonly Task[],
    asking: Asking & { fullIsEnough?: boolean },
  ): Promise<EnvironmentFacts>;
}
