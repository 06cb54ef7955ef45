// Every record of the store (docs/records.md) but those of evaluations, which are beside. Types only.
// A record's digest is the sha256 of its canonical JSON without the member `observed`: clocks, hosts, attempts live there.
import type {
  BudgetSpec,
  KlEstimator,
  LossReduction,
  PolicyLossType,
  RebaseSpec,
  RunSpec,
  SlackSpec,
  TrackingSpec,
} from '../run-spec.js';
import type { Numerics } from './numerics.js';

/** Lower-case hex sha256, 64 characters. */
export type Digest = string;

export interface RunRecord {
  schema: 'longhaul.run/1' | 'longhaul.run/2';
  run: string;
  name: string;
  spec: RunSpec;
  seed: number;
  base_model: Digest;
  tokenizer: Digest;
  chat_template: Digest;
  tool_parser: string;
  dataset: DatasetReference;
  lineage: Lineage | null;
  observed: { started_at: string };
}

export interface DatasetReference {
  name: string;
  version: string;
  /** Digest of `manifest.json`. */
  digest: Digest;
}

export interface Lineage {
  run: string;
  step: number;
  state: Digest;
  rebase?: RebaseSpec;
}

export interface DatasetManifest {
  schema: 'longhaul.dataset/1';
  name: string;
  version: string;
  files: FileEntry[];
  tasks: number;
  train_tasks: number;
  held_out_tasks: number;
  /** Demonstrations by kind. */
  demonstrations: Record<string, number>;
}

export interface FileEntry {
  path: string;
  size: number;
  sha256: Digest;
}

/** One GRPO slot: a place for a group. */
export interface GroupSlot {
  slot: number;
  task_key: string;
  env_key: string;
  template: string;
  /** Seed of the environment's episode, shared by the group. */
  seed: number;
}

export interface SamplingPlan {
  temperature: number;
  max_turns: number;
  max_input_length: number;
  max_generate_length: number;
  max_sequence_length: number;
  tools_format: 'json' | 'signatures';
  system_prompt: 'skyrl' | 'short';
  max_output_chars: number;
  max_episode_failures: number;
  /** A turn ends with the token that completes one of these texts. */
  stop?: string[];
  /** Draw from the likeliest tokens alone. Log-probs stay those of the whole distribution. */
  top_p?: number;
  top_k?: number;
}

/** One optimizer update's effective settings. */
export interface OptimizerPlan {
  /** One per mini-batch (sub-update), in order. */
  learning_rates: number[];
  adam_betas: [number, number];
  adam_eps: number;
  weight_decay: number;
  max_grad_norm: number;
  /** Zero the moments and the optimizer's count before the first mini-batch. */
  reset_moments: boolean;
}

/** The engine's loss, as its protocol takes it: `src/spec/loss.ts` makes it of a spec. Keys that do not bear on it are absent. */
export interface LossPlan {
  kind: PolicyLossType | 'cross_entropy';
  reduction: LossReduction;
  max_seq_len?: number;
  eps_clip_low?: number;
  eps_clip_high?: number;
  clip_ratio_c?: number;
  cispo_eps_clip_low?: number;
  cispo_eps_clip_high?: number;
  sapo_tau_pos?: number;
  sapo_tau_neg?: number;
  /** Absent, like the two below: no such term. */
  kl_weight?: number;
  kl_estimator?: KlEstimator;
  entropy_weight?: number;
  tis_cap?: number;
}

/** How a GRPO step's advantages follow from its outcomes. */
export type AdvantagePlan =
  | { estimator: 'grpo'; norm_by_std: true; deviation: 'population' | 'sample'; eps: number }
  | { estimator: 'grpo'; norm_by_std: false }
  | { estimator: 'rloo' }
  | { estimator: 'reinforce++' }
  | { estimator: 'maxrl'; eps: number };

/** Curriculum and data position (R7): as used for this step (`pass_rates`) and as left after planning it (`cursors`). */
export interface CurriculumState {
  /** Moving pass rate by template, a function of past outcomes alone. */
  pass_rates: Record<string, number>;
  /** Next unused task by template (index into the template's shuffled list; wraps into a new epoch). */
  cursors: Record<string, number>;
}

interface PlanBase {
  schema: 'longhaul.plan/2' | 'longhaul.plan/3';
  run: string;
  step: number;
  previous_state: Digest;
  /** Present in a step that applies a logged batch anew: whose plan and batch it is (R18). */
  rebased?: { run: string; plan: Digest };
  optimizer: OptimizerPlan;
  loss: LossPlan;
  /** Digest of the weights that the loss's KL term is taken against; absent where it has none. */
  reference?: Digest;
  curriculum: CurriculumState;
  digests: { tokenizer: Digest; chat_template: Digest; tool_parser: string; dataset: Digest };
  numerics: Numerics;
  /** Highest control record folded in; 0 when none. */
  control: number;
  owner: number;
  /** Present from version 3 on: sha256 of the bytes of `run.json`. */
  run_digest?: Digest;
  /** Likewise: `inputsDigest` of the sha256 of the control records that are folded in, and of the owners up to `owner`. */
  control_digest?: Digest;
  owner_digest?: Digest;
}

export interface GrpoPlan extends PlanBase {
  kind: 'grpo';
  slots: GroupSlot[];
  samples_per_slot: number;
  advantages: AdvantagePlan;
  sampling: SamplingPlan;
}

export interface SftPlan extends PlanBase {
  kind: 'sft';
  phase: string;
  /** Line numbers in `demonstrations.jsonl`, one list per mini-batch. */
  mini_batches: number[][];
  /** Sampling settings shape the prompt (tool list, system text) of a demonstration too. */
  sampling: SamplingPlan;
}

export type PlanRecord = GrpoPlan | SftPlan;

export type Outcome =
  { status: 'graded'; value: number } | { status: 'unknown'; reason: string; failures: number };

export interface TurnRecord {
  /** Step of the policy that sampled it (equals `step − 1` while `max_lag` is 0). */
  policy_step: number;
  /** Sampled tokens are `tokens[start..end)`. */
  start: number;
  end: number;
  tool?: string;
  error?: boolean;
}

export type StopReason = 'done' | 'max_turns' | 'length' | 'unknown';

/** One terminal record for a (slot, sample) of a step, or a (task, sample) of an evaluation (R8). */
export interface EpisodeRecord {
  schema: 'longhaul.episode/1' | 'longhaul.episode/2';
  /** What it belongs to: a plan's digest, or a suite's. */
  plan: Digest;
  state: Digest;
  slot: number;
  sample: number;
  task_key: string;
  env_key: string;
  outcome: Outcome;
  stop_reason: StopReason;
  /** Token ids of the whole transcript; the prompt is `tokens[0..prompt_length)`. */
  tokens: number[];
  prompt_length: number;
  turns: TurnRecord[];
  /** float32 log-probs of the sampled tokens, turn after turn. */
  logprobs: number[];
  metrics: { turns: number; tool_calls: number; tool_errors: number };
  observed: {
    attempt: number;
    /** The execution of the activity that played it, which all its attempts share. Absent in records of earlier versions. */
    execution?: string;
    incarnation: string;
    /** Infrastructure failures by reason; only charged ones count against `max_episode_failures`. */
    failures: Record<string, number>;
    /** Text of the last failure of an episode with an unknown outcome, as `recordedText` leaves it. Since version 2. */
    failure?: string;
    /** Why the grader gave this grade, for people. Since version 2. */
    explanation?: string;
    started_at: string;
    seconds: number;
  };
}

/** Stored in the batch file's `__metadata__.longhaul` (canonical JSON). */
export interface BatchIdentity {
  schema: 'longhaul.batch/2';
  run: string;
  step: number;
  plan: Digest;
  previous_state: Digest;
  /** Digest over the episodes' digests in (slot, sample) order; of the demonstrations' lines for `sft`. */
  inputs: Digest;
  mini_batches: number;
  /** Sampled tokens with a loss, per mini-batch: the token mean's denominator. */
  loss_tokens: number[];
  /** Per slot, per sample: graded value, or null for unknown. Empty for `sft`. */
  outcomes: (number | null)[][];
  /** Figures of the episodes (SkyRL's names); functions of the inputs. */
  metrics: Record<string, number>;
}

export interface UpdateIdentity {
  run: string;
  step: number;
  kind: 'grpo' | 'sft';
  plan: Digest;
  /** sha256 of the batch file. */
  batch: Digest;
  previous_state: Digest;
  state: Digest;
  step_id: Digest;
  numerics: Numerics;
  applied: true | { reason: string };
  /** Per slot, per sample: graded value, or null for unknown. Empty for `sft`. */
  outcomes: (number | null)[][];
  /** Digest of the model's weights, where GRPO begins behind this step and trains all of them: what a KL term is taken against. */
  weights?: Digest;
}

export interface UpdateObserved {
  /** SkyRL's metric names. */
  metrics: Record<string, number>;
  timings_ms: Record<string, number>;
  engine: { build: string; incarnation: string };
  committed_at: string;
  /** The process that committed it: `{node}@{host} pid {pid}`. */
  worker?: string;
}

/**
 * First line of `episodes.jsonl.gz`: the episodes of a committed step, or of a whole evaluation, folded into one file (R23). `count`:
 * lines that follow, one for each episode.
 */
export type EpisodesHeader =
  | { schema: 'longhaul.episodes/1'; run: string; step: number; count: number }
  | { schema: 'longhaul.episodes/2'; state: Digest; suite: Digest; count: number };

/** `steps/{n}/update.json`, n ≥ 1 (R11). */
export interface UpdateRecord {
  schema: 'longhaul.update/1' | 'longhaul.update/2';
  identity: UpdateIdentity;
  observed: UpdateObserved;
}

/** `steps/000000/update.json`: the base model (R5). */
export interface BaseRecord {
  schema: 'longhaul.base/1';
  identity: {
    run: string;
    step: 0;
    base_model: Digest;
    state: Digest;
    /** Digest of the model's weights without adapters: what a KL term is taken against. */
    weights?: Digest;
    numerics: Numerics;
  };
  observed: {
    engine: { build: string; incarnation: string };
    committed_at: string;
    /** Number of parameters of the model without adapters, and of what is trained. */
    parameters?: { model: number; trained: number };
  };
}

export interface OwnerRecord {
  schema: 'longhaul.owner/1' | 'longhaul.owner/2';
  n: number;
  address: string;
  clusterId: string;
  namespace: string;
  workflowId: string;
  firstExecutionRunId: string;
  observed: {
    at: string;
    by: string;
    /** Where this start found its environments, by `env_key`; null: at the node's own server. */
    environment_urls?: Record<string, string | null>;
    /** What this start may use; absent: no limit. */
    budget?: BudgetSpec;
    /** Whom the follower tells of the run since this start; absent: nobody. */
    tracking?: TrackingSpec;
    slack?: SlackSpec;
  };
}

/** What a tracker or a channel has not been told of a run; never truth. */
export interface NoticeRecord {
  schema: 'longhaul.notice/1';
  n: number;
  /** `wandb`, `slack`, … */
  sink: string;
  /** Null: it has caught up. */
  trouble: {
    /** In words for people: `points behind step 12`. */
    what: string;
    /** With the mend, where there is one. */
    reason: string;
    /** ISO 8601. */
    since: string;
  } | null;
  observed: { at: string; by: string };
}

export interface NameRecord {
  schema: 'longhaul.name/1';
  n: number;
  run: string;
}

/** `refs/{user}.json`: what another still needs of this run, so that no collection takes it away (R22, R23). */
export interface RefRecord {
  schema: 'longhaul.ref/1';
  /** The run that is needed: the one whose timeline holds `step`. */
  run: string;
  /** Who needs it: a fork's run id. */
  user: string;
  kind: 'fork';
  /** The state after this step; the newest checkpoint at or before it stays. */
  step: number;
  observed: { at: string };
}

/** `gc/{n}.json`: what is about to be deleted (R23). Never withdrawn; what a reference holds by then is spared. */
export interface CollectionRecord {
  /** Version 2 has `batches` and `evaluations`. */
  schema: 'longhaul.gc/1' | 'longhaul.gc/2';
  n: number;
  run: string;
  /** Steps whose checkpoints go. Their plans and batches stay, so that their states can still be computed. */
  checkpoints: number[];
  /** Committed steps whose episodes go into one file. */
  episodes: number[];
  /** Committed steps whose batches are compressed. */
  batches?: number[];
  /** Whole evaluations whose episodes go into one file. */
  evaluations?: { state: Digest; suite: Digest }[];
  /** Seconds between this record and the first deletion. */
  grace_s: number;
  observed: { at: string; by: string };
}

/** `checkpoints/…/manifest.json`, written last (R31). */
export interface CheckpointManifest {
  schema: 'longhaul.checkpoint/1';
  run: string;
  step: number;
  state: Digest;
  numerics: Numerics;
  files: FileEntry[];
}

/** `weights/{weights}/manifest.json`, written last: a model's weights that a run was brought as a folder. */
export interface WeightsManifest {
  schema: 'longhaul.weights/1';
  /** The engine's digest of them (docs/engine-protocol.md, "The state"). */
  weights: Digest;
  files: FileEntry[];
}
