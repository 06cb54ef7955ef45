// The run spec as every other part sees it: checked, with all defaults filled in; `spec-input.ts` makes one from the input. Types only, of
// the schema, which has the meaning of each key. Names follow SkyRL's if it has one.
import type { z } from 'zod';
import type { Numerics } from './records/numerics.js';
import type { runSpecSchema } from './schema.js';

type Checked = z.output<typeof runSpecSchema>;

/** The spec in which a model folder's own files are named. */
export type RunSpec = Omit<Checked, 'model' | 'fork'> & { model: ModelSpec; fork?: ForkSpec };

/** Where the policy comes from. */
export type ModelSpec = Checked['model'] & { tokenizer: string; chat_template: string };
export type Moments = ModelSpec['moments'];
/** Adapters over a model that a Tinker server has. */
export type ServedModel = NonNullable<ModelSpec['served']>;
/** LoRA: W·x + (alpha / rank) · B·A·x. */
export type LoraSpec = NonNullable<ModelSpec['lora']>;
/** A Qwen3 or Qwen2.5 architecture, in the keys of its `config.json`. */
export type ModelArchitecture = NonNullable<ModelSpec['architecture']>;

export type DataSpec = Checked['data'];
/** The generator names an app that it does not know. */
export type BuiltinDataSpec = Omit<NonNullable<DataSpec['builtin']>, 'apps'> & { apps: string[] };
export type EnvironmentSpec = Checked['environments'][number];
/** Supervised steps before GRPO; each step applies `mini_batches_per_step` optimizer updates. */
export type SftPhaseSpec = Checked['warm_start'][number];
export type GeneratorSpec = Checked['generator'];
export type TrainerSpec = Checked['trainer'];

/** Which checkpoints a collection keeps, beside the newest and those that another run refers to. */
export type RetentionSpec = NonNullable<Checked['retention']>;
/** Where a fork begins: after a committed step of another run, or of a timeline of its own name (R22). */
export type ForkSpec = Omit<NonNullable<Checked['fork']>, 'rebase'> & { rebase?: RebaseSpec };
/** The parent's logged batches after the fork's step, up to `to`, are applied again with these numerics, which stay the run's (R18). */
export interface RebaseSpec {
  to: number;
  numerics: Numerics;
}
/** Limits of what a run may use; it ends at the step boundary after one is spent. Absent ones do not limit. */
export type BudgetSpec = NonNullable<Checked['budget']>;
/** Where a run works. Never truth: no record of a step depends on it. */
export type PlacementSpec = NonNullable<Checked['placement']>;
/** The trackers that receive a run's figures. Never truth: the figures are read from the records. */
export type TrackingSpec = NonNullable<Checked['tracking']>;
/** Where the follower posts the events of a run. The run's start is always posted, because the thread hangs on it. */
export type SlackSpec = NonNullable<Checked['slack']>;
export type SlackNews = NonNullable<SlackSpec['events']>[number];
