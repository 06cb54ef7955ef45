// The type of a run spec after checking, with all defaults filled in; `spec-input.ts` makes one from the input. `schema.ts` says what each
// key means. A key has SkyRL's name if SkyRL has that setting.
import type { z } from 'zod';
import type { Numerics } from './records/numerics.js';
import type { runSpecSchema } from './schema.js';

type Checked = z.output<typeof runSpecSchema>;

/** The checked spec. Tokenizer and chat template are always named, even if they come from the model folder. */
export type RunSpec = Omit<Checked, 'model' | 'fork'> & { model: ModelSpec; fork?: ForkSpec };

/** Where the policy comes from. */
export type ModelSpec = Checked['model'] & { tokenizer: string; chat_template: string };
export type Moments = ModelSpec['moments'];
/** Adapters on a model that a Tinker server holds. */
export type ServedModel = NonNullable<ModelSpec['served']>;
/** LoRA adapters: W·x + (alpha / rank) · B·A·x. */
export type LoraSpec = NonNullable<ModelSpec['lora']>;
/** A Qwen3 or Qwen2.5 architecture, with the keys of its `config.json`. */
export type ModelArchitecture = NonNullable<ModelSpec['architecture']>;
/** YaRN on a model folder, with the keys of `rope_scaling` in its `config.json`. */
export type RopeScaling = NonNullable<ModelSpec['rope_scaling']>;

export type DataSpec = Checked['data'];
export type EnvironmentSpec = Checked['environments'][number];
/** Supervised steps before GRPO; each step applies `mini_batches_per_step` optimizer updates. */
export type SftPhaseSpec = Checked['warm_start'][number];
export type GeneratorSpec = Checked['generator'];
export type TrainerSpec = Checked['trainer'];

/** Which checkpoints a collection keeps, in addition to the newest one and those to which another run refers. */
export type RetentionSpec = NonNullable<Checked['retention']>;
/** Where a fork begins: after a committed step of another run, or of an earlier timeline of the same name (R22). */
export type ForkSpec = Omit<NonNullable<Checked['fork']>, 'rebase'> & { rebase?: RebaseSpec };
/** A rebase applies the parent's logged batches after the fork's step, up to `to`, again with these numerics; the run keeps them (R18). */
export interface RebaseSpec {
  to: number;
  numerics: Numerics;
}
/** Limits of what a run may use. The run ends after the step in which a limit is reached. An absent limit does not apply. */
export type BudgetSpec = NonNullable<Checked['budget']>;
/** On which nodes a run works. No record of a step depends on it. */
export type PlacementSpec = NonNullable<Checked['placement']>;
/** The trackers that receive a run's figures. No step depends on them: the figures come from the records. */
export type TrackingSpec = NonNullable<Checked['tracking']>;
/** Where the follower posts the events of a run. It always posts the run's start, which opens the thread. */
export type SlackSpec = NonNullable<Checked['slack']>;
export type SlackNews = NonNullable<SlackSpec['events']>[number];
