// One interface over all environment backends.
import type { Outcome } from '../spec/records/episode.js';
import type { Task, ToolCall, ToolSpec } from '../spec/records/task.js';

export interface OpenOptions {
  /** Seed of the episode's world and of its injected faults; shared by a group, so that its samples meet one world. */
  seed: number;
  episodeId: string;
  /** Try number within this playing (R26). */
  tryNumber: number;
  /** While no other episode of this process is open on the server: then a death of the server shows which episode caused it (R25). */
  alone?: boolean;
}

export interface ToolResult {
  /** What the model sees. */
  text: string;
  isError: boolean;
}

export interface Grade {
  outcome: Extract<Outcome, { status: 'graded' }>;
  /** Why, for people. Never shown to the model. */
  explanation: string;
}

/** A world on a server that keeps it without a connection: what another process needs to go on in it. */
export interface SessionReference {
  url: string;
  id: string;
  /** Names the world among all that the session has held. */
  world: string;
}

/** One episode's session. Calls are made one at a time. After an `EnvironmentError` only `close` may follow. */
export interface Environment {
  /** The tools on offer; known after `open`. */
  readonly tools: readonly ToolSpec[];
  /** Absent if the world ends with this process. */
  readonly session?: SessionReference;
  /** If the session can be attached to, the newest call may come again under its turn and try: it is done once. */
  callTool(call: ToolCall, options: { turn: number; tryNumber: number }): Promise<ToolResult>;
  grade(options: { finalAnswer: string; tryNumber: number }): Promise<Grade>;
  /** Gives the session back for another episode, or ends it. Never throws. */
  close(): Promise<void>;
}

export interface EnvironmentBackend {
  /** Opens a session on this task's world. Waits for a free place while the signal is quiet. */
  open(task: Task, options: OpenOptions, signal: AbortSignal): Promise<Environment>;
  /**
   * Goes on in a world that another process has opened and sent `calls` calls to, the last of them answered or not. Null if it is gone, is
   * held by another client, or does not stand there.
   */
  attach?(
    task: Task,
    session: SessionReference,
    calls: number,
    signal: AbortSignal,
  ): Promise<Environment | null>;
  /** Asks for the tools of an environment again before the next episode: the server may be another one. */
  forgetTools?(envKey: string): void;
  /** True when the server answers. */
  healthy(): Promise<boolean>;
  close(): Promise<void>;
}

/**
 * `unavailable`: transport loss or a restarting server; not charged to the episode (R25).
 * `failed`: a healthy server could not do what was asked (open, call or grade); charged.
 */
export class EnvironmentError extends Error {
  constructor(
    readonly kind: 'unavailable' | 'failed',
    /** Short name for counters: `connect`, `socket_lost`, `timeout`, `capacity`, `open`, `call`, `grade`. */
    readonly reason: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'EnvironmentError';
  }
}
