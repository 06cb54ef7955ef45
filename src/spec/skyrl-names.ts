// SkyRL's names that differ from ours. Each remedy says which names to write instead.

/** SkyRL's values that are different here, by the last part of the key's path. */
const values: Record<string, Record<string, string>> = {
  advantage_estimator: {
    gae: 'it needs a critic, and Longhaul trains none: use grpo, rloo, reinforce++ or maxrl',
  },
  policy_loss_type: {
    clip_cov: 'its choice of tokens is random; regular with a larger eps_clip_high also keeps entropy up',
    kl_cov:
      'use_kl_loss holds all tokens near the policy that GRPO begins with, and regular clips each of them',
    rollout_is:
      'rollouts and updates have the same log-probs here, so regular gives the same; use_tis: true corrects a difference',
    dppo: 'use regular, dual_clip or gspo, which bound the size of a step',
    dppo_binary_tv: 'use regular, dual_clip or gspo, which bound the size of a step',
    dppo_binary_kl: 'use regular, dual_clip or gspo, which bound the size of a step',
    ppo: 'its name here is regular',
    ppo_critic: 'no critic is trained here',
    importance_sampling: 'use reinforce: it is the same if a batch is used for one update only, as here',
    cross_entropy: 'it would also imitate failures; for supervised phases see warm_start',
  },
  loss_reduction: {
    token_mean_legacy: 'token_mean is the mean over a whole mini-batch, however it is cut to fit into memory',
    prompt_mean: 'sequence_mean gives each sample, and so each group, the same weight',
    seq_mean: 'its name here is sequence_mean',
  },
  kl_estimator_type: {
    abs: 'use k2 or k3, which are never negative either',
    low_var_kl: 'its name here is k3',
  },
};

/** SkyRL's keys that do not exist here, wherever they appear. */
const keys: Record<string, string> = {
  algorithm: 'its keys belong directly under trainer: trainer.policy_loss_type, trainer.eps_clip_low, …',
  use_kl_in_reward: 'the KL term is part of the loss here: use_kl_loss, kl_loss_coef',
  kl_ctrl: 'the weight of the KL term is kl_loss_coef; it can be changed during the run',
  use_abs_kl: 'kl_estimator_type: k2 or k3 is never negative either',
  use_kl_estimator_k3: 'write kl_estimator_type: k3',
  advantage_batch_normalize: 'advantage_estimator: reinforce++ is whitened over the step',
  zero_variance_filter: 'groups whose rewards are all the same never carry a loss',
  dynamic_sampling:
    'groups whose rewards are all the same never carry a loss; trainer.curriculum draws fewer of them',
  use_hybrid_env_sampling: 'trainer.balance: env gives every environment the same number of groups',
  value_head_prefix: 'no critic is trained here',
  lambd: 'no critic is trained here',
  gamma: 'no critic is trained here, and all tokens of a sample get the sample’s reward',
  value_clip: 'no critic is trained here',
  clip_cov: 'policy_loss_type has no clip_cov; regular with a larger eps_clip_high also keeps entropy up',
  kl_cov:
    'policy_loss_type has no kl_cov; use_kl_loss holds the policy near the policy that GRPO begins with',
  update_epochs_per_batch: 'a batch is used for one update only, so its log-probs are exact',
  policy_mini_batch_size: 'a GRPO step is one update of train_batch_size groups',
  micro_train_batch_size_per_gpu:
    'the engine cuts a batch to fit into its memory, and the result does not depend on the cut',
  off_policy_correction: 'only use_tis and tis_imp_ratio_cap are available',
  logger: 'name each tracker: tracking.wandb, tracking.tensorboard, tracking.metrics_jsonl',
  project_name: 'its name here is project; W&B may use another project, in tracking.wandb.project',
  run_name: 'its name here is name',
  tracker_commit_each_step: 'every step is logged as its own point, as soon as it is committed',
};

/** What to write instead of a SkyRL value; null if SkyRL has no such value or it is the same here. */
export function fixOfValue(path: readonly PropertyKey[], value: unknown): string | null {
  const known = values[String(path.at(-1))] ?? {};
  return typeof value === 'string' && Object.hasOwn(known, value) ? (known[value] as string) : null;
}

export function mendOfKey(key: string): string | null {
  return Object.hasOwn(keys, key) ? (keys[key] as string) : null;
}
