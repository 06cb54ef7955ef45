// What each kind of environment gives a node, and what the node has for all of them.
import type { EnvironmentSpec } from '../spec/run-spec.js';
import type { EnvironmentBackend } from './environment.js';
import type { MadeSessions } from './openenv/made-sessions.js';
import type { Semaphore } from './openenv/semaphore.js';

/** What a node has for all of its environments. */
export interface EnvironmentHost {
  /** Server for specs that name none, and its grading token. */
  url: string | null;
  token?: string;
  /** Sessions that outlive their sockets are noted here. */
  made?: MadeSessions;
  /** Places on a server, shared by all backends there. `most`: at most this many. */
  placesOf(url: string, most?: number): Semaphore;
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
}
