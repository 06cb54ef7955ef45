// The run spec as every other part sees it: checked, with all defaults filled in. Types only; `spec-input.ts` makes one from the input.
// Names follow SkyRL's if it has one.
import type { Numerics } from './records/numerics.js';

/** Where the policy comes from. */
export interface ModelSpec {
  /** Name in checkpoint keys: `checkpoints/{project}/{name}/…`. */
  name: string;
  /** `random`: weights drawn by Philox from the run's seed and `architecture` (Hugging Face `config.json` keys), if no `path` is given. */
  init: 'random';
  /** Shape of a model with random weights; absent if `path` has one. */
  architecture?: ModelArchitecture;
  /** Standard deviation of random weights; o_proj and down_proj are divided by √(2·layers). */
  initializer_range: number;
  /** Hugging Face folder that the weights come from, relative to the spec file. */
  path?: string;
  /** Only adapters beside frozen weights are trained. Absent: all weights. */
  lora?: LoraSpec;
  /** How the optimizer keeps its moments. */
  moments: Moments;
  /** Path of a Hugging Face `tokenizer.json`, relative to the spec file; default `{path}/tokenizer.json`. */
  tokenizer: string;
  /** Path of a Jinja chat template, relative to the spec file; default `{path}/chat_template.jinja`. */
  chat_template: string;
}

export type Moments = 'fp32' | 'int8';
export type LoraTarget = 'q_proj' | 'k_proj' | 'v_proj' | 'o_proj' | 'gate_proj' | 'up_proj' | 'down_proj';

/** LoRA: W·x + (alpha / rank) · B·A·x. */
export interface LoraSpec {
  rank: number;
  alpha: number;
  /** Linear layers that have adapters, in every block. */
  targets: LoraTarget[];
  /** Seed of the first A matrices; absent: the run's seed. */
  seed?: number;
}

/** A Qwen3 or Qwen2.5 architecture, in the keys of its `config.json`. */
export interface ModelArchitecture {
  /** Absent: `qwen3`. */
  model_type?: 'qwen3' | 'qwen2';
  vocab_size: number;
  hidden_size: number;
  intermediate_size: number;
  num_hidden_layers: number;
  num_attention_heads: number;
  num_key_value_heads: number;
  head_dim: number;
  rms_norm_eps: number;
  rope_theta: number;
  yarn?: {
    factor: number;
    original_max_position_embeddings: number;
    beta_fast?: number;
    beta_slow?: number;
    attention_factor?: number;
  };
  tie_word_embeddings: boolean;
  max_position_embeddings: number;
}

export interface DataSpec {
  /** JSONL file of tasks, relative to the spec file. Mutually exclusive with `builtin`. */
  tasks?: string;
  /** JSONL file of demonstrations for `sft` phases, relative to the spec file. */
  demonstrations?: string;
  /** Tasks and demonstrations of the built-in apps, generated once from this seed. */
  builtin?: BuiltinDataSpec;
  /** Held-out tasks of each interval evaluation, and of the evaluations before and after GRPO. */
  eval_tasks: number;
  final_eval_tasks: number;
}

export interface BuiltinDataSpec {
  apps: string[];
  seed: number;
  train_tasks: number;
  held_out_tasks: number;
  drill_demonstrations: number;
  teacher_demonstrations: number;
}

export interface EnvironmentSpec {
  /** Matches `Task.env_key`. */
  env_key: string;
  /** OpenEnv server, `http://host:port`. Absent: the embedded stack's built-in server. */
  url?: string;
  /** Name of the environment variable that holds the grading token; never the token itself. */
  grading_token_env?: string;
  /** Share of infrastructure calls and of model-visible calls that the built-in server fails on purpose, 0..1. */
  fault_rate: number;
  tool_error_rate: number;
}

/** Supervised steps before GRPO; each step applies `mini_batches_per_step` optimizer updates. */
export interface SftPhaseSpec {
  name: string;
  /** `kind` of the demonstrations this phase reads. */
  demonstrations: string;
  updates: number;
  mini_batches_per_step: number;
  mini_batch_size: number;
  lr: number;
  warmup_updates: number;
  /** Share of the phase, at its end, over which the rate falls linearly to a tenth. 0 keeps it constant. */
  decay_share: number;
  adam_betas: [number, number];
}

export interface GeneratorSpec {
  n_samples_per_prompt: number;
  temperature: number;
  max_turns: number;
  /** Tokens: of the prompt and history before a turn, of one turn, of the whole transcript. */
  max_input_length: number;
  max_generate_length: number;
  max_sequence_length: number;
  tools_format: 'json' | 'signatures';
  system_prompt: 'skyrl' | 'short';
  /** Characters of a tool result that reach the model; the rest is cut, with a note to the model. */
  max_output_chars: number;
  /** Charged failures of one episode before its outcome is `unknown`. */
  max_episode_failures: number;
  /** Largest share of unknown outcomes, 0..1, of an evaluation and of two steps in a row; above it the run is blocked. */
  max_unknown_share: number;
  /** A turn also ends with the token that completes one of these texts, not only where the chat template ends it. */
  stop?: string[];
  /** Draw training episodes from the likeliest tokens alone; only with `truncated_sampling`. */
  top_p?: number;
  top_k?: number;
  /** Accepts that the episodes come from another distribution than the log-probs that training takes the ratio of. */
  truncated_sampling?: boolean;
  /** Seconds to wait for an environment that is down before the run is `blocked`. */
  max_wait_s: number;
  /** Seconds within which an environment call must be answered. */
  call_timeout_s: number;
}

export type PolicyLossType = 'regular' | 'dual_clip' | 'gspo' | 'cispo' | 'sapo' | 'reinforce';
export type LossReduction = 'token_mean' | 'sequence_mean' | 'seq_mean_token_sum_norm';
export type KlEstimator = 'k1' | 'k2' | 'k3';
export type AdvantageEstimator = 'grpo' | 'rloo' | 'reinforce++' | 'maxrl';

export interface TrainerSpec {
  /** Groups (task slots) per GRPO step. */
  train_batch_size: number;
  /** GRPO steps; `sft` steps come on top. */
  max_training_steps: number;
  lr: number;
  warmup_steps: number;
  adam_betas: [number, number];
  adam_eps: number;
  weight_decay: number;
  max_grad_norm: number;
  policy_loss_type: PolicyLossType;
  loss_reduction: LossReduction;
  /** Divisor of `seq_mean_token_sum_norm`, in tokens; absent: `max_input_length` + `max_generate_length`. */
  max_seq_len?: number;
  eps_clip_low: number;
  eps_clip_high: number;
  /** Lower bound that `dual_clip` adds. */
  clip_ratio_c: number;
  cispo: { cispo_eps_clip_low: number; cispo_eps_clip_high: number };
  sapo: { tau_pos: number; tau_neg: number };
  use_kl_loss: boolean;
  kl_loss_coef: number;
  kl_estimator_type: KlEstimator;
  use_entropy_loss: boolean;
  entropy_loss_coef: number;
  use_tis: boolean;
  tis_imp_ratio_cap: number;
  advantage_estimator: AdvantageEstimator;
  grpo_norm_by_std: boolean;
  /** Divides a group's squared deviations by n (`population`) or n − 1 (`sample`, as SkyRL does). */
  advantage_deviation: 'population' | 'sample';
  /** Added to a group's standard deviation, of `maxrl` to its mean. */
  advantage_eps: number;
  /** Draw task templates ∝ p(1−p) + this floor, p the moving pass rate; 0 draws tasks uniformly. */
  curriculum_floor: number;
  ckpt_interval: number;
  eval_interval: number;
  /** End the run at the first interval evaluation whose pass@1 reaches this; 0 disables. */
  target_pass_at_1: number;
  /**
   * Seconds that the same failure must last before the run is `blocked`; 0: at once, after a try on another node; absent:
   * `usualBlockAfterSeconds`.
   */
  block_after_s?: number;
}

/** Which checkpoints a collection keeps, beside the newest and those that another run refers to. */
export interface RetentionSpec {
  keep_last: number;
  /** Steps; one checkpoint in each stretch of this length stays. 0: none for this reason. */
  keep_every: number;
  /** Steps with the best evaluations. 0: none for this reason. */
  keep_best: number;
}

/** Where a fork begins: after a committed step of another run, or of a timeline of its own name (R22). */
export interface ForkSpec {
  /** Run id. */
  run: string;
  step: number;
  rebase?: RebaseSpec;
}

/** The parent's logged batches after the fork's step, up to `to`, are applied again with these numerics, which stay the run's (R18). */
export interface RebaseSpec {
  to: number;
  numerics: Numerics;
}

/** Limits of what a run may use; it ends at the step boundary after one is spent. Absent ones do not limit. */
export interface BudgetSpec {
  /** Sampled in training. */
  max_tokens?: number;
  /** Seconds since the run's first start, pauses and outages included. */
  max_wall_s?: number;
  /** Hours in which a node worked for the run. */
  max_gpu_hours?: number;
  max_usd?: number;
  usd_per_gpu_hour?: number;
}

/** Where a run works. Never truth: no record of a step depends on it. */
export interface PlacementSpec {
  /** Runs with a higher value get a free node first. */
  priority: number;
  /** Number of nodes that may share the rollouts of one step. */
  nodes: number;
}

/** The trackers that receive a run's figures. Never truth: the figures are read from the records. */
export interface TrackingSpec {
  metrics_jsonl: boolean;
  tensorboard: boolean;
  /** Absent: not to W&B. */
  wandb?: WandbSpec;
}

export interface WandbSpec {
  /** Absent: the run's own. */
  project?: string;
  /** User or team; absent: the key's own. */
  entity?: string;
  /** Absent: the run's id. */
  name?: string;
  mode: 'online' | 'offline';
}

export type SlackNews = 'checkpoints' | 'evaluations' | 'alerts' | 'pauses' | 'end';

/** Where the follower posts the events of a run. */
export interface SlackSpec {
  /** `#name`, `name` or an id. */
  channel: string;
  /** Absent: all. The run's start is always posted, because the thread hangs on it. */
  events?: SlackNews[];
}

export interface RunSpec {
  name: string;
  project: string;
  seed: number;
  /** Absent: the base model, or the position of the name's newest timeline. */
  fork?: ForkSpec;
  model: ModelSpec;
  data: DataSpec;
  environments: EnvironmentSpec[];
  warm_start: SftPhaseSpec[];
  generator: GeneratorSpec;
  trainer: TrainerSpec;
  /** Absent: every checkpoint stays. */
  retention?: RetentionSpec;
  /** Absent: no limit. */
  budget?: BudgetSpec;
  /** Absent: one node, priority 0. */
  placement?: PlacementSpec;
  /** Absent: only `metrics.jsonl`. */
  tracking?: TrackingSpec;
  /** Absent: nothing is posted in Slack. */
  slack?: SlackSpec;
}
