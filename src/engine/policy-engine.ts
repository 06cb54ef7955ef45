// The policy as rollouts see it: something that samples. How its states are made and kept is a `StateKeeper`'s part.
import type { Digest } from '../spec/records/parts.js';
import type { Numerics } from '../spec/records/numerics.js';

export interface EngineInfo {
  /** Random id of the engine process. */
  incarnation: string;
  /** Version and compiler of the engine's build; observed only. */
  build: string;
  numerics: Numerics;
  instructionSet: string;
  threads: number;
}

/** Random numbers are Philox, keyed by these and the token's position (R13). */
export interface SamplingKey {
  seed: number;
  domain: 'train' | 'eval';
  step: number;
  slot: number;
  sample: number;
}

export interface GenerateRequest {
  /** State that must be held, else `WrongState` (R15). */
  state: Digest;
  /** The whole transcript so far; the engine finds the longest cached prefix itself. */
  tokens: readonly number[];
  key: SamplingKey;
  temperature: number;
  max_new_tokens: number;
  /** Generation ends after the first of these; it is part of the result. */
  stop_tokens: readonly number[];
  /** Generation ends with the token that completes one of these texts; needs `setVocabulary`. */
  stop_strings?: readonly string[];
  /** Draw from the likeliest tokens alone: those that make up this share, and at most this many. Log-probs stay those of the whole. */
  top_p?: number;
  top_k?: number;
}

export interface GenerateResult {
  tokens: number[];
  /** float32 log-probs at `temperature`, one per token. */
  logprobs: number[];
  finish: 'stop' | 'length' | 'stop_string';
}

/** How far an update has come, in shards of its mini-batches. */
export interface UpdateProgress {
  done: number;
  total: number;
}

export interface UpdateResult {
  state: Digest;
  applied: true | { reason: string };
  /** Over all mini-batches: loss, grad_norm, clip_ratio, max_logprob_difference, … (docs/engine.md). */
  metrics: Record<string, number>;
}

/**
 * Errors are `EngineError` with a code: `WrongState`, `WrongBase`, `WrongReference`, `BadBatch`, `BadInput` (the request), `BadFile` (a
 * file's contents), `Io` (a disk), `Internal` (the engine), `Cancelled`, `OutOfMemory`, `EngineExited`, `VersionMismatch`,
 * `EngineMissing`; `OtherNumerics` is for callers that compare its numerics with a run's (R18).
 */
export interface PolicyEngine {
  /** Starts the process if it is not running. */
  info(): Promise<EngineInfo>;
  /** The bytes of each token, for stop strings. Forgotten by a load of another vocabulary size. */
  setVocabulary(tokens: readonly Uint8Array[]): Promise<void>;
  generate(request: GenerateRequest, signal?: AbortSignal): Promise<GenerateResult>;
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
      | 'EngineMissing'
      | 'OtherNumerics',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'EngineError';
  }
}

/** The engine's process has ended; every open call is undone. */
export class EngineExited extends EngineError {
  constructor(
    message: string,
    readonly pid: number,
    /** Since its end, or since its last answer if it was ended for its silence. */
    readonly noticedAfterMs: number,
  ) {
    super('EngineExited', message);
  }
}
