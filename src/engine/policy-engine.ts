// The policy as the rest of Longhaul sees it. `native/` implements it over a child process; others may follow.
import type { Digest, Numerics } from '../spec/records.js';
import type { ModelArchitecture } from '../spec/run-spec.js';

/** What an implementation promises; what it cannot is declared, not faked. */
export interface EngineCapabilities {
  stateDigest: boolean;
  exactLogprobs: boolean;
  regenerates: boolean;
}

export interface EngineInfo {
  /** Random id of the engine process. */
  incarnation: string;
  /** Version and compiler of the engine's build; observed only. */
  build: string;
  numerics: Numerics;
  instructionSet: string;
  threads: number;
}

/** A state that the engine holds. */
export interface HeldState {
  state: Digest;
  /** `step_id` of the last update this process applied; null after a load. */
  lastStepId: Digest | null;
}

export interface RandomModel {
  architecture: ModelArchitecture;
  initializer_range: number;
  seed: number;
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
}

export interface GenerateResult {
  tokens: number[];
  /** float32 log-probs at `temperature`, one per token. */
  logprobs: number[];
  finish: 'stop' | 'length';
}

export interface ScoreRequest {
  state: Digest;
  tokens: readonly number[];
  temperature: number;
}

export interface UpdateRequest {
  /** State before; the engine refuses another with `WrongState`. */
  state: Digest;
  step_id: Digest;
  batchPath: string;
  batchSha256: Digest;
  learning_rates: readonly number[];
  adam_betas: readonly [number, number];
  adam_eps: number;
  weight_decay: number;
  max_grad_norm: number;
  reset_moments: boolean;
  loss: { kind: 'cross_entropy' } | { kind: 'clipped_policy'; eps_clip_low: number; eps_clip_high: number };
  temperature: number;
}

/** How far an update has come, in logical shards of its mini-batches. */
export interface UpdateProgress {
  done: number;
  total: number;
}

export interface UpdateResult {
  state: Digest;
  applied: true | { reason: string };
  /** Means over the mini-batches: loss, grad_norm, clip_ratio, entropy is not computed; max_logprob_difference. */
  metrics: Record<string, number>;
}

export interface SavedState {
  state: Digest;
  files: { path: string; size: number; sha256: Digest }[];
}

/**
 * Every call names the state digest it needs. Errors are `EngineError` with a code:
 * `WrongState`, `BadBatch`, `BadInput`, `Cancelled`, `OutOfMemory`, `EngineExited`, `VersionMismatch`,
 * `EngineMissing`; `OtherNumerics` is for those who compare its numerics with a run's (R18).
 */
export interface PolicyEngine {
  readonly capabilities: EngineCapabilities;
  /** Starts the process where it is not running. */
  info(): Promise<EngineInfo>;
  held(): Promise<HeldState | null>;
  loadRandom(model: RandomModel): Promise<HeldState>;
  /** Loads `state.safetensors` that `saveState` wrote. */
  loadState(path: string): Promise<HeldState>;
  saveState(state: Digest, path: string): Promise<SavedState>;
  generate(request: GenerateRequest, signal?: AbortSignal): Promise<GenerateResult>;
  /** Log-probs of tokens[1..], conditioned on what precedes each; float32. */
  score(request: ScoreRequest): Promise<number[]>;
  /** All or nothing: one that is cancelled on its way leaves the state as it was. */
  update(
    request: UpdateRequest,
    onProgress?: (progress: UpdateProgress) => void,
    signal?: AbortSignal,
  ): Promise<UpdateResult>;
  stats(): Promise<Record<string, number>>;
  /** Ends the engine; the next call starts a fresh one, which holds no state. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export class EngineError extends Error {
  constructor(
    readonly code:
      | 'WrongState'
      | 'BadBatch'
      | 'BadInput'
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

/** The engine's process has ended; whatever was asked of it is undone. */
export class EngineExited extends EngineError {
  constructor(
    message: string,
    readonly pid: number,
    /** Since its end, or since it last answered where it was ended for its silence. */
    readonly noticedAfterMs: number,
  ) {
    super('EngineExited', message);
  }
}
