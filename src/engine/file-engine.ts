// A policy engine that keeps its states as files on its own disk. The native engine implements this interface, and its `StateKeeper` uses
// it.
import type { Digest } from '../spec/records/parts.js';
import type { LossPlan } from '../spec/records/loss-plan.js';
import type { LoraSpec, ModelArchitecture, Moments } from '../spec/run-spec.js';
import type { PolicyEngine, UpdateProgress, UpdateResult } from './policy-engine.js';

export interface HeldState {
  state: Digest;
  /** Digest of the model's weights without adapters. Null after an update of all weights, because the digest would have to be computed. */
  weights: Digest | null;
  /** Digest of the KL term's reference weights; null without a reference. */
  reference: Digest | null;
  /** `step_id` of the last update that this process applied; null after a load. */
  lastStepId: Digest | null;
}

/** Bytes by part, as planned before the engine allocates memory. `total` is their sum, `available` the most that the engine may use. */
type MemoryPlan = Record<string, number> & { total: number; available: number };

export interface LoadedState {
  state: Digest;
  weights: Digest;
  memory: MemoryPlan;
  architecture: ModelArchitecture;
  /** Number of parameters in the model without adapters, and in its trained part. */
  parameters: { model: number; trained: number };
}

/** The trained part of a model, and the number format of its moments. Default: all weights, `fp32`. */
export interface TrainedPart {
  /** `seed`: seed of the adapters' first values. */
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

/** Source of the KL term's reference weights. `held`: the weights that the engine holds; with LoRA, the base weights. */
export type ReferenceSource = { held: true } | { path: string } | null;

/** Exports a state as a folder for other programs. The adapters are merged into the weights, or written in PEFT's format. */
export interface ExportRequest {
  state: Digest;
  /** Path of the folder to create; it must not exist. */
  path: string;
  dtype: 'F32' | 'BF16';
  adapters: 'merged' | 'peft';
  /** Ids of the tokens that end a text, for the folder's configuration. */
  eos_tokens: readonly number[];
  /** With `peft`: path of the base model, for programs that open the adapters. */
  base_model?: string;
}

export interface ScoreRequest {
  state: Digest;
  tokens: readonly number[];
  temperature: number;
}

export interface UpdateRequest {
  /** State before the update. If the engine holds another state, it answers `WrongState`. */
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
  /** Digest returned by `setReference`. If the engine holds another reference, it answers `WrongReference`. */
  reference?: Digest;
}

export interface SavedFile {
  path: string;
  size: number;
}

export interface SavedState {
  state: Digest;
  files: SavedFile[];
}

interface SavedWeights {
  weights: Digest;
  files: SavedFile[];
}

/** An engine that loads states from files and saves states to files. Every call names the digest of the state that it needs. */
export interface FileEngine extends PolicyEngine {
  /** With `weights`, the digest of the weights is always returned, even if it must be computed. */
  held(wanted?: { weights: true }): Promise<HeldState | null>;
  loadRandom(model: RandomModel): Promise<LoadedState>;
  /** Loads a Hugging Face folder. */
  loadHf(model: StoredModel): Promise<LoadedState>;
  /** Loads a file that `saveWeights` wrote. */
  loadWeights(model: StoredModel): Promise<LoadedState>;
  saveWeights(weights: Digest, path: string): Promise<SavedWeights>;
  /**
   * Loads a `state.safetensors` written by `saveState`. `base`: file or folder with the base weights of a LoRA state, needed if the engine
   * does not hold them. Other base weights are an error, `WrongBase`.
   */
  loadState(state: { path: string; base?: string }): Promise<LoadedState>;
  saveState(state: Digest, path: string): Promise<SavedState>;
  /** Returns the digest of the new reference weights; null if there are none now. */
  setReference(from: ReferenceSource): Promise<Digest | null>;
  /** Writes a folder that transformers can open, but without the tokenizer's files. */
  exportHf(request: ExportRequest): Promise<SavedState>;
  /** Returns the float32 log-probs of tokens[1..], each conditioned on the tokens before it. */
  score(request: ScoreRequest): Promise<number[]>;
  /** All or nothing: if it is cancelled, the state stays the same. */
  update(
    request: UpdateRequest,
    onProgress?: (progress: UpdateProgress) => void,
    signal?: AbortSignal,
  ): Promise<UpdateResult>;
  /** Ends the engine process. The next call starts a new one, which holds no state. */
  restart(): Promise<void>;
}
