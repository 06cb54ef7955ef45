// The interface that all environment backends implement.
import type { Digest } from '../spec/records/parts.js';
import type { EnvironmentReason, Outcome } from '../spec/records/episode.js';
import type { Task, ToolCall, ToolSpec } from '../spec/records/task.js';

export interface OpenOptions {
  /** Seed of the episode's world and injected faults. A group's episodes share it, so that they get the same world. */
  seed: number;
  episodeId: string;
  /** Number of this try within one playing of the episode (R26). */
  tryNumber: number;
  /** No other episode of this process may be open on the server: a death of the server then shows which episode caused it (R25). */
  alone?: boolean;
  /** Worlds that this node has already opened for the episode; absent: `tryNumber`. */
  opening?: number;
  /** Id of the run that plays the episode; absent if no run does. */
  run?: string;
  /** Called repeatedly while the world is made, which may take minutes. */
  onWait?: (reason: string) => void;
}

/** Part of a tool's result. */
export type ContentBlock =
  | { type: 'text'; text: string }
  /** `sha256` and `size` (bytes) identify the image. Its bytes are not kept, because no policy here can see them. */
  | { type: 'image'; mime: string; sha256: Digest; size: number };

export interface ToolResult {
  /** `contentText` in `src/episode/observation.ts` makes it the text that the model sees. */
  content: readonly ContentBlock[];
  isError: boolean;
  /** The environment has ended the episode. */
  ends?: true;
}

export interface Grade {
  outcome: Extract<Outcome, { status: 'graded' }>;
  /** Reason for the reward, for people; never shown to the model. */
  explanation: string;
}

/** What another process needs to continue in a world that its server keeps while nobody is connected. */
export interface SessionReference {
  url: string;
  id: string;
  /** Identifies the world among all worlds that the session has had. */
  world: string;
}

/** The session of one episode. It takes one call at a time. After an `EnvironmentError`, only `close` may be called. */
export interface Environment {
  /** The tools that the environment offers; known after `open`. */
  readonly tools: readonly ToolSpec[];
  /** What the model is shown of the world at its beginning; absent if there is nothing, or if another process opened the world. */
  readonly opening?: string;
  /** Absent if the world ends with this process. */
  readonly session?: SessionReference;
  /** If the session can be attached to, the newest call may be repeated with the same turn and try; it is carried out once. */
  callTool(call: ToolCall, options: { turn: number; tryNumber: number }): Promise<ToolResult>;
  grade(options: { finalAnswer: string; tryNumber: number }): Promise<Grade>;
  /** Returns the session for another episode, or ends it. Never throws. */
  close(): Promise<void>;
}

export interface EnvironmentBackend {
  /** Opens a session in this task's world. Waits for a free place until the signal aborts. */
  open(task: Task, options: OpenOptions, signal: AbortSignal): Promise<Environment>;
  /**
   * Continues in a world that another process opened and to which it sent `calls` calls; the last call may be unanswered. Null if the world
   * is gone, belongs to another client, or has received another number of calls.
   */
  attach?(
    task: Task,
    session: SessionReference,
    calls: number,
    signal: AbortSignal,
  ): Promise<Environment | null>;
  /** Makes the next episode ask again for the environment's tools, because the server may be another one. */
  forgetTools?(envKey: string): void;
  /** Ends the sessions that no episode uses: on a small server they would hold the places of all others. */
  releaseIdle?(): Promise<void>;
  /** True if the server answers. */
  healthy(): Promise<boolean>;
  close(): Promise<void>;
}

/**
 * `unavailable`: a lost connection or a restarting server; not charged to the episode (R25).
 * `failed`: a healthy server could not do what was asked (open, call or grade); charged to the episode.
 */
export class EnvironmentError extends Error {
  constructor(
    readonly kind: 'unavailable' | 'failed',
    /** Short name, for counters and outcomes. */
    readonly reason: EnvironmentReason,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'EnvironmentError';
  }
}
