// The ranges of the settings that may change during a run, and what they depend on. The spec's schema and the Update `setHyperparameters`
// both use them, so that a value which one accepts is never refused by the other. Without zod, for the workflow bundle.

export interface NumberRange {
  /** The value is greater than this. */
  above?: number;
  least?: number;
  most?: number;
  whole?: true;
}

const steps: NumberRange = { least: 1, most: 1_000_000, whole: true };
/** The longest context of a public model; the model's own limit is checked besides. */
const tokens: NumberRange = { least: 1, most: 1_048_576, whole: true };

/** Named as in the spec. The keys of a step's records have digits for 100,000 groups with 1,000 samples each. */
export const liveRanges = {
  lr: { above: 0, most: 1 },
  eps_clip_low: { least: 0, most: 1 },
  eps_clip_high: { above: 0 },
  kl_loss_coef: { least: 0, most: 10 },
  entropy_loss_coef: { least: 0, most: 1 },
  train_batch_size: { least: 1, most: 100_000, whole: true },
  ckpt_interval: steps,
  eval_interval: steps,
  temperature: { above: 0, most: 10 },
  n_samples_per_prompt: { least: 2, most: 1_000, whole: true },
  max_turns: { least: 1, most: 1_000, whole: true },
  max_input_length: tokens,
  max_generate_length: tokens,
  max_sequence_length: tokens,
} satisfies Record<string, NumberRange>;

export type LiveSetting = keyof typeof liveRanges;

/** Default of `model.architecture.max_position_embeddings`, which limits the settings in tokens. */
export const defaultPositions = 32_768;

const clip = ['eps_clip_low', 'eps_clip_high'] as const;

/** The settings that the engine needs for each kind of loss, in addition to the reduction. */
export const settingsOfKind = {
  regular: clip,
  dual_clip: [...clip, 'clip_ratio_c'],
  gspo: clip,
  cispo: ['cispo_eps_clip_low', 'cispo_eps_clip_high'],
  sapo: ['sapo_tau_pos', 'sapo_tau_neg'],
  reinforce: [],
  cross_entropy: [],
} as const;

/** True for kinds of loss that clip the probability ratio at 1 − `eps_clip_low` and 1 + `eps_clip_high`. */
export function clipsRatio(kind: string): boolean {
  const settings: Readonly<Record<string, readonly string[]>> = settingsOfKind;
  return settings[kind]?.includes('eps_clip_low') ?? false;
}
