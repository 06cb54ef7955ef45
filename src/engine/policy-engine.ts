// The policy as rollouts see it: they only sample from it. A `StateKeeper` makes and saves its states.
import type { Digest } from '../spec/records/parts.js';
import type { ServedUpdate } from '../spec/records/served-model.js';
import type { Numerics } from '../spec/records/numerics.js';

export interface EngineInfo {
  /** Random id of the engine process. */
  incarnation: string;
  /** Version and compiler of the engine's build; used only for observation. */
  build: string;
  numerics: Numerics;
  /** The GPU that it computes on; null for a CPU. */
  gpu: { name: string; memory_bytes: number } | null;
  instructionSet: string;
  threads: number;
}

/** Key of the Philox random numbers, together with a token's position (R13). */
export interface SamplingKey {
  seed: number;
  domain: 'train' | 'eval';
  step: number;
  slot: number;
  sample: number;
}

export interface GenerateRequest {
  /** The state to sample from. If the engine does not hold it, the call fails with `WrongState` (R15). */
  state: Digest;
  /** The whole transcript so far; the engine finds the longest cached prefix itself. */
  tokens: readonly number[];
  key: SamplingKey;
  temperature: number;
  max_new_tokens: number;
  /** Generation ends after the first of these tokens, which is included in the result. */
  stop_tokens: readonly number[];
  /** Generation ends with the token that completes one of these strings. Needs `setVocabulary`. */
  stop_strings?: readonly string[];
  /**
   * Sample only from the most likely tokens: those that together have probability `top_p`, and at most `top_k`. Log-probs are still those
   * of the full distribution.
   */
  top_p?: number;
  top_k?: number;
}

export interface GenerateResult {
  tokens: number[];
  /** float32 log-probs at `temperature`, one per token. */
  logprobs: number[];
  finish: 'stop' | 'length' | 'stop_string';
}

/** Name of the wait for a Tinker server that is away or has queued a request. */
export const policyServer = 'policy server';

/** Called while a request waits, with the reason if one is known. */
export type OnWaiting = (waiting: { reason?: string }) => void;

/** How far an update has come, in shards of its mini-batches. */
export interface UpdateProgress {
  done: number;
  total: number;
}

export interface UpdateResult {
  state: Digest;
  applied: true | { reason: string };
  /** Over all mini-batches: loss, grad_norm, clip_ratio, max_logprob_difference, … (see docs/engine.md). */
  metrics: Record<string, number>;
  /** On a Tinker server, if the batch was applied. */
  served?: ServedUpdate;
  /** sha256 of the recorded log-probs that the update was trained on; only on a Tinker server, with `use_tis`. */
  rescored?: Digest;
}

/**
 * Errors are `EngineError` with a code: `WrongState`, `WrongBase`, `WrongReference`, `BadBatch`, `BadInput` (the request), `BadFile` (a
 * file's contents), `Io` (a disk), `Internal` (the engine), `Cancelled`, `OutOfMemory`, `EngineExited`, `VersionMismatch`, `EngineMissing`.
 * `OtherNumerics` is thrown by callers that compare the engine's numerics with a run's (R18).
 */
export interface PolicyEngine {
  /** Starts the process if it is not running. */
  info(): Promise<EngineInfo>;
  /** Sets the bytes of each token, which stop strings need. They are dropped when a model with another vocabulary size is loaded. */
  setVocabulary(tokens: readonly Uint8Array[]): Promise<void>;
  generate(request: GenerateRequest, signal?: AbortSignal, onWaiting?: OnWaiting): Promise<GenerateResult>;
  stats(): Promise<Record<string, number>>;
  close(): Promise<void>;
}

export class EngineError extends Error {
  constructor(
    readonly code:
      | 'WrongState'
      | 'WrongBase'
      | 'WrongReference'
      | 'BadBatch'
      | 'BadInput'
      | 'BadFile'
      | 'Io'
      | 'Internal'
      | 'Cancelled'
      | 'OutOfMemory'
      | 'EngineExited'
      | 'VersionMismatch'
      | 'DeviceDiffers'
      | 'DeviceUnavailable'
      | 'EngineMissing'
      | 'OtherNumerics',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'EngineError';
  }
}

/** The engine process has ended, and the results of its open calls are lost. */
export class EngineExited extends EngineError {
  constructor(
    message: string,
    readonly pid: number,
    /** Milliseconds since the process ended, or, if it was killed for its silence, since its last answer. */
    readonly noticedAfterMs: number,
  ) {
    super('EngineExited', message);
  }
}
