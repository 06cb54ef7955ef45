// A policy engine whose states are files on its own disk: the native engine's face, and what its `StateKeeper` drives.
import type { Digest } from '../spec/records/parts.js';
import type { LossPlan } from '../spec/records/loss-plan.js';
import type { LoraSpec, ModelArchitecture, Moments } from '../spec/run-spec.js';
import type { PolicyEngine, UpdateProgress, UpdateResult } from './policy-engine.js';

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

/** An engine that loads states from files and saves them to files. Every call names the state digest it needs. */
export interface FileEngine extends PolicyEngine {
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
  /** Log-probs of tokens[1..], conditioned on what precedes each; float32. */
  score(request: ScoreRequest): Promise<number[]>;
  /** All or nothing: a cancelled one leaves the state as it was. */
  update(
    request: UpdateRequest,
    onProgress?: (progress: UpdateProgress) => void,
    signal?: AbortSignal,
  ): Promise<UpdateResult>;
  /** Ends the engine; the next call starts a fresh one, which holds no state. */
  restart(): Promise<void>;
}
