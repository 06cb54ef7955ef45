// Notes about keys that have SkyRL's name but mean something else here, and about keys without effect because another key is missing. Specs with
// such keys are accepted, so the notes are the only hint.

interface Meaning {
  path: string;
  /** What the key means here, and in SkyRL. */
  note: string;
  /** With one of these keys in the spec there is no note, because its author knows the difference. */
  unless?: string;
  /** If present, only this value has another meaning. */
  value?: unknown;
}

const meanings: readonly Meaning[] = [
  {
    path: 'generator.max_generate_length',
    note:
      'limits one turn; SkyRL documents it as the length of the whole response. ' +
      'The whole transcript is limited by generator.max_sequence_length',
  },
  {
    path: 'trainer.train_batch_size',
    note: 'is the number of groups of one update; SkyRL cuts it into updates of policy_mini_batch_size',
  },
  {
    path: 'trainer.grpo_norm_by_std',
    value: true,
    unless: 'trainer.advantage_deviation',
    note: 'divides by the standard deviation of n; SkyRL by that of n − 1, as trainer.advantage_deviation: sample does',
  },
  {
    path: 'trainer.loss_reduction',
    value: 'token_mean',
    note: 'token_mean is the mean over all tokens of a step; SkyRL Fleet Training averages the means of micro-batches',
  },
  ...Object.entries({
    'trainer.kl_loss_coef': 'trainer.use_kl_loss',
    'trainer.kl_estimator_type': 'trainer.use_kl_loss',
    'trainer.entropy_loss_coef': 'trainer.use_entropy_loss',
    'trainer.tis_imp_ratio_cap': 'trainer.use_tis',
  }).map(([path, unless]) => ({ path, unless, note: `has no effect without ${unless}: true` })),
  {
    path: 'trainer.dynamic_sampling.max_sample_batches',
    note: 'counts the first wave too, and the step goes on with what it has; SkyRL ends the run at this limit',
  },
];

/** One line for each key of the input that has another meaning in SkyRL. `input`: as a person wrote it, without defaults. */
export function skyrlMeanings(input: unknown): string[] {
  return meanings.flatMap(({ path, note, unless, value }) => {
    const given = valueAt(input, path);
    if (given === undefined || (value !== undefined && given !== value)) return [];
    return unless !== undefined && valueAt(input, unless) !== undefined ? [] : [`${path} ${note}`];
  });
}

function valueAt(input: unknown, path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>(
      (value, key) =>
        typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined,
      input,
    );
}
