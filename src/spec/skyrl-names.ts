// SkyRL's names that differ from ours. Each remedy says which names to write instead.

/** SkyRL's values that are different here, by the last part of the key's path. */
const values: Record<string, Record<string, string>> = {
  advantage_estimator: {
    gae: 'it needs a critic, and none is trained here: grpo, rloo, reinforce++ and maxrl need none',
  },
  policy_loss_type: {
    clip_cov: 'its choice of tokens is random; regular with a larger eps_clip_high keeps entropy up as well',
    kl_cov:
      'use_kl_loss holds all tokens near the policy that GRPO begins with, and regular clips each of them',
    rollout_is:
      'rollouts and updates have the same log-probs here, so that regular is the same; use_tis: true corrects others',
    dppo: 'regular, dual_clip and gspo bound how far a step may go',
    dppo_binary_tv: 'regular, dual_clip and gspo bound how far a step may go',
    dppo_binary_kl: 'regular, dual_clip and gspo bound how far a step may go',
    ppo: 'it is named regular',
    ppo_critic: 'no critic is trained here',
    importance_sampling: 'reinforce is the same where a batch is used for one update, as here',
    cross_entropy: 'it would imitate failures too, and is for supervised phases: see warm_start',
  },
  loss_reduction: {
    token_mean_legacy: 'token_mean is over a whole mini-batch, however it is cut for memory',
    prompt_mean: 'sequence_mean gives each sample the same weight, and with them each group',
    seq_mean: 'it is named sequence_mean',
  },
  kl_estimator_type: {
    abs: 'k2 and k3 are never negative either',
    low_var_kl: 'it is named k3',
  },
};

/** SkyRL's keys that do not exist here, wherever they appear. */
const keys: Record<string, string> = {
  algorithm: 'its keys stand in trainer itself: trainer.policy_loss_type, trainer.eps_clip_low, …',
  use_kl_in_reward: 'a KL term belongs to the loss here: use_kl_loss, kl_loss_coef',
  kl_ctrl: 'the weight of the KL term is kl_loss_coef; it may be set while the run is under way',
  use_abs_kl: 'kl_estimator_type: k2 or k3 is never negative either',
  use_kl_estimator_k3: 'write kl_estimator_type: k3',
  advantage_batch_normalize: 'advantage_estimator: reinforce++ is whitened over the step',
  zero_variance_filter: 'groups whose rewards are all the same never carry a loss',
  dynamic_sampling:
    'groups whose rewards are all the same never carry a loss; curriculum_floor draws fewer of them',
  value_head_prefix: 'no critic is trained here',
  lambd: 'no critic is trained here',
  gamma: 'no critic is trained here, and a sample’s reward is that of all its tokens',
  value_clip: 'no critic is trained here',
  clip_cov: 'policy_loss_type has no clip_cov; regular with a larger eps_clip_high keeps entropy up as well',
  kl_cov:
    'policy_loss_type has no kl_cov; use_kl_loss holds the policy near the policy that GRPO begins with',
  update_epochs_per_batch: 'a batch is used for one update: its log-probs are exact then',
  policy_mini_batch_size: 'a GRPO step is one update of train_batch_size groups',
  micro_train_batch_size_per_gpu:
    'the engine cuts a batch by the memory that it has, and no result depends on that',
  off_policy_correction: 'use_tis and tis_imp_ratio_cap are what there is of it',
  logger: 'name each tracker: tracking.wandb, tracking.tensorboard, tracking.metrics_jsonl',
  project_name: 'it is named project; W&B alone may have another one in tracking.wandb.project',
  run_name: 'it is named name',
  tracker_commit_each_step: 'every step is a point of its own, as soon as it is committed',
};

/** What to write instead of a SkyRL value; null if SkyRL has no such value or it is the same here. */
export function fixOfValue(path: readonly PropertyKey[], value: unknown): string | null {
  const known = values[String(path.at(-1))] ?? {};
  return typeof value === 'string' && Object.hasOwn(known, value) ? (known[value] as string) : null;
}

export function mendOfKey(key: string): string | null {
  return Object.hasOwn(keys, key) ? (keys[key] as string) : null;
}
