// The policy as the rest of Longhaul sees it. `native/` implements it over a child process; others may follow.
import type { Digest } from '../spec/records/parts.js';
import type { LossPlan } from '../spec/records/loss-plan.js';
import type { Numerics } from '../spec/records/numerics.js';
import type { LoraSpec, ModelArchitecture, Moments } from '../spec/run-spec.js';

/** What an implementation guarantees; missing features are declared, not faked. */
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
  /** Digest of the model's weights without adapters; null after an update of all weights, because it would have to be computed. */
  weights: Digest | null;
  /** Digest of the weights that the KL term compares with; null without a reference. */
  reference: Digest | null;
  /** `step_id` of the last update this process applied; null after a load. */
  lastStepId: Digest | null;
}

/** Bytes by part, as the engine plans them before it allocates anything; `total` is their sum, `available` what it may take. */
export type MemoryPlan = Record<string, number> & { total: number; available: number };

export interface LoadedState {
  state: Digest;
  weights: Digest;
  memory: MemoryPlan;
  architecture: ModelArchitecture;
  /** Numbers of parameters in the model without adapters, and in its trained part. */
  parameters: { model: number; trained: number };
}

/** The trained part of a model, and the format of its moments; default: all of its weights and `fp32`. */
export interface TrainedPart {
  /** `seed`: of the adapters' first values. */
  lora?: LoraSpec & { seed: number };
  moments?: Moments;
}

export interface RandomModel extends TrainedPart {
  architecture: ModelArchitecture;
  initializer_range: number;
  seed: number;
}

/** A model on the engine's disk: a Hugging Face folder, or a file that `saveWeights` wrote. */
export interface StoredModel extends TrainedPart {
  path: string;
}

/** Source of the KL term's weights; `held`: the held ones, with LoRA the base. */
export type ReferenceSource = { held: true } | { path: string } | null;

/** A state as a folder for other programs: adapters merged into the weights, or in PEFT's form. */
export interface ExportRequest {
  state: Digest;
  /** A path that does not exist yet. */
  path: string;
  dtype: 'F32' | 'BF16';
  adapters: 'merged' | 'peft';
  /** Ids that end a text, for the folder's configuration. */
  eos_tokens: readonly number[];
  /** With `peft`: the path of the model under the adapters, for programs that open them. */
  base_model?: string;
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
  loss: LossPlan;
  temperature: number;
  /** The digest from `setReference`; another held one is `WrongReference`. */
  reference?: Digest;
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

export interface SavedFile {
  path: string;
  size: number;
}

export interface SavedState {
  state: Digest;
  files: SavedFile[];
}

export interface SavedWeights {
  weights: Digest;
  files: SavedFile[];
}

/**
 * Every call names the state digest it needs. Errors are `EngineError` with a code: `WrongState`, `WrongBase`, `WrongReference`,
 * `BadBatch`, `BadInput` (the request), `BadFile` (a file's contents), `Io` (a disk), `Internal` (the engine), `Cancelled`, `OutOfMemory`,
 * `EngineExited`, `VersionMismatch`, `EngineMissing`; `OtherNumerics` is for callers that compare its numerics with a run's (R18).
 */
export interface PolicyEngine {
  readonly capabilities: EngineCapabilities;
  /** Starts the process if it is not running. */
  info(): Promise<EngineInfo>;
  /** `weights`: always return their digest, even if they have to be hashed. */
  held(wanted?: { weights: true }): Promise<HeldState | null>;
  loadRandom(model: RandomModel): Promise<LoadedState>;
  /** Loads a Hugging Face folder. */
  loadHf(model: StoredModel): Promise<LoadedState>;
  /** Loads a file that `saveWeights` wrote. */
  loadWeights(model: StoredModel): Promise<LoadedState>;
  saveWeights(weights: Digest, path: string): Promise<SavedWeights>;
  /**
   * Loads `state.safetensors` that `saveState` wrote. `base`: weights file or folder under a LoRA state, if its weights are not held
   * already; one with other weights is `WrongBase`.
   */
  loadState(state: { path: string; base?: string }): Promise<LoadedState>;
  saveState(state: Digest, path: string): Promise<SavedState>;
  /** Returns the digest of the reference weights; null if there are none now. */
  setReference(from: ReferenceSource): Promise<Digest | null>;
  /** Writes a folder that transformers opens, without tokenizer files. */
  exportHf(request: ExportRequest): Promise<SavedState>;
  /** The bytes of each token, for stop strings. Forgotten by a load of another vocabulary size. */
  setVocabulary(tokens: readonly Uint8Array[]): Promise<void>;
  generate(request: GenerateRequest, signal?: AbortSignal): Promise<GenerateResult>;
  /** Log-probs of tokens[1..], conditioned on what precedes each; float32. */
  score(request: ScoreRequest): Promise<number[]>;
  /** All or nothing: a cancelled one leaves the state as it was. */
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
