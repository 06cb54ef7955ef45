// Settings of TRL, verl, OpenRLHF, slime, prime-rl, NeMo-RL and the Tinker cookbook that have another name here, or none. Each remedy says
// what to write instead. `skyrl-names.ts` has those of SkyRL.
import { toolFormatNames } from '../tool-format-names.js';

const turnTokens =
  'write generator.max_generate_length, the most tokens of one turn; generator.max_sequence_length limits the whole transcript';
const inputTokens = 'write generator.max_input_length, which covers the whole transcript before a turn';
const samples = 'write generator.n_samples_per_prompt';
const evalSamples = 'write generator.eval_n_samples_per_prompt';
const groups =
  'write trainer.train_batch_size: it counts groups, so prompts × generator.n_samples_per_prompt samples are a step';
const steps = 'write trainer.max_training_steps';
const epochs = 'write trainer.max_training_steps: epochs × training tasks / trainer.train_batch_size';
const oneUpdate = 'a batch is used for one update only: remove it';
const cut = 'the engine cuts a batch to fit into its memory: remove it';
const rate = 'write trainer.lr';
const warmup = 'write trainer.warmup_steps: a number of GRPO steps';
const constant = 'the rate is constant after trainer.warmup_steps: remove it';
const adamW = 'the optimizer is AdamW: remove it';
const kl = 'write trainer.kl_loss_coef beside trainer.use_kl_loss: true; leave both out where it is 0';
const entropy =
  'write trainer.entropy_loss_coef beside trainer.use_entropy_loss: true; leave both out where it is 0';
const lowAndHigh = 'write trainer.eps_clip_low and trainer.eps_clip_high';
const dualClip = 'write trainer.clip_ratio_c beside trainer.policy_loss_type: dual_clip';
const reduction =
  'write trainer.loss_reduction: token_mean (dapo, bnpo), sequence_mean (grpo) or seq_mean_token_sum_norm (dr_grpo); ' +
  'cispo and sapo are values of trainer.policy_loss_type';
const saves = 'write trainer.ckpt_interval';
const keeps = 'write retention.keep_last';
const evaluations = 'write trainer.eval_interval';
const always = 'it is always so here: remove it';
const everyStep = 'every step is logged: remove it';
const tracker = 'name each tracker: tracking.wandb, tracking.tensorboard, tracking.metrics_jsonl';
const store = 'everything is in the store, which `longhaul up --store` names: remove it';
const resumes = 'a run with records always goes on with them: remove it';
const exported = '`longhaul export RUN` writes a model folder: remove it';
const modelPath = 'write model.path: a folder with config.json and safetensors';
const tasks =
  'write data.tasks: a file with one task a line, of which "split": "held_out" marks those for evaluation';
const tasksOnly = 'remove it: data.tasks names a file with one task a line';
const columns = 'remove it: a task has the keys task_key, prompt and env_key';
const placed = 'the engine places the work and chooses number formats itself: remove it';
const ownSampling =
  'it is an option of the inference engine, and Longhaul’s engine samples itself: remove it';
const noCritic = 'no critic is trained here: remove it';
const grades = 'the environment grades an episode: remove it';
const fixedReference =
  'trainer.use_kl_loss keeps the policy that GRPO begins with as its reference: remove it';
const truncated = 'with generator.truncated_sampling: true; leave it out where all tokens are taken';
const notHere = 'nothing here has its effect: remove it';
const toolFormat = `write generator.tool_format: auto, ${toolFormatNames.join(', ')}`;
const thinking =
  'write generator.chat_template_kwargs with the variable of the model’s template, such as {enable_thinking: false}';
const newest = 'every step samples with the newest policy, so nothing is stale: remove it';
const ownLoop =
  'Longhaul plays the episodes itself: write environments, generator.max_turns and generator.tool_format';
const wholeCheckpoint = 'a checkpoint has the whole state, which a run needs to continue: remove it';
const environments =
  'write environments: a list with env_key and url of each server, whose tools the model gets';

/** Parts of a path below which nothing has a place here. */
const parts: Record<string, string> = {
  critic: noCritic,
  reward_model: grades,
  custom_reward_function: grades,
  reward: grades,
  reward_manager: grades,
  ref: fixedReference,
  ray_init: placed,
  ray_kwargs: placed,
  cluster: placed,
  fsdp_config: placed,
  fsdp: placed,
  deepspeed: placed,
  megatron: placed,
  megatron_cfg: placed,
  dtensor_cfg: placed,
  profiler: notHere,
  global_profiler: notHere,
  transfer_queue: notHere,
  distillation: notHere,
  checkpoint_engine: placed,
  engine_kwargs: ownSampling,
  vllm_cfg: ownSampling,
  colocated: ownSampling,
  generation_kwargs: 'write its keys directly under generator: temperature, stop, top_p, top_k',
  model_init_kwargs: placed,
  agent: ownLoop,
  async_training: newest,
  async_config: newest,
  custom_cls: tasksOnly,
  override_config: 'write it into config.json of the folder in model.path',
};

/** Names, or ends of paths, that say which setting is meant; each remedy with all names of the setting. */
const names: readonly (readonly [remedy: string, names: string])[] = [
  [
    rate,
    'learning_rate optim.lr optimizer.lr optimizer_config.lr lr actor_learning_rate policy.optimizer.kwargs.lr',
  ],
  [
    warmup,
    'warmup_ratio lr_warmup_steps lr_warmup_steps_ratio lr_warmup_ratio num_warmup_steps lr_warmup_iters',
  ],
  [
    constant,
    'lr_scheduler_type lr_scheduler lr_scheduler_kwargs lr_schedule warmup_style min_lr_ratio min_lr num_cycles lr_decay_style',
  ],
  ['write trainer.adam_betas: [0.9, 0.999]', 'adam_beta1 adam_beta2 betas beta1 beta2 optim.betas'],
  ['write trainer.adam_eps', 'adam_epsilon optim.eps'],
  ['write trainer.weight_decay', 'optim.weight_decay l2'],
  ['write trainer.max_grad_norm', 'grad_clip clip_grad max_norm gradient_clipping grad_norm_clip'],
  [adamW, 'optim optim_args optimizer optimizer_type'],
  [
    samples,
    'num_generations rollout.n n num_return_sequences group_size rollouts_per_example num_generations_per_prompt',
  ],
  [
    samples,
    'n_samples num_samples_per_prompt samples_per_prompt num_samples num_rollouts_per_prompt rollouts_per_prompt',
  ],
  [evalSamples, 'num_generations_eval val_kwargs.n n_samples_per_eval_prompt eval_num_generations'],
  ['write generator.eval_temperature, above 0', 'val_kwargs.temperature val_temperature'],
  [
    'evaluations sample from the full distribution: remove it',
    'val_kwargs.top_p val_kwargs.top_k val_kwargs.do_sample',
  ],
  ['write generator.temperature', 'rollout_temperature sampling.temperature rollout.temperature'],
  [`write generator.top_p ${truncated}`, 'top_p rollout_top_p'],
  [`write generator.top_k ${truncated}`, 'top_k rollout_top_k'],
  ['write generator.stop', 'stop_strings stop_sequences rollout_stop stop_words stop_token_ids'],
  [turnTokens, 'max_tokens max_tokens_per_turn'],
  [
    thinking,
    'enable_thinking thinking reasoning_effort enable_reasoning apply_chat_template_kwargs chat_template_kwargs',
  ],
  [
    newest,
    'max_async_level async_level max_off_policy_steps max_steps_off_policy staleness_threshold max_staleness partial_rollout',
  ],
  [
    wholeCheckpoint,
    'save_contents load_contents save_only_model async_save save_optimizer only_save_model save_optimizer_states',
  ],
  [ownLoop, 'rollout_func rollout_function agent_loop agent_loop_config_path custom_generate_function_path'],
  ['write seed at the top', 'seed data_seed dataset_seed random_seed rng_seed rollout_seed'],
  [
    'the engine packs the samples of a batch: remove it',
    'packing packing_samples sequence_packing use_sequence_packing padding_free use_packing',
  ],
  [tasks, 'data.path data.file data.files data.train data.val data.validation data.test data.eval'],
  [
    turnTokens,
    'max_completion_length max_new_tokens generator.max_tokens max_completion_tokens max_output_tokens',
  ],
  [
    turnTokens,
    'max_response_length response_length generate_max_len rollout_max_response_len max_gen_len sampling.max_tokens',
  ],
  [
    inputTokens,
    'max_prompt_length prompt_length prompt_max_len rollout_max_prompt_len max_input_tokens max_input_seq_length',
  ],
  [
    'write generator.max_sequence_length',
    'max_seq_length max_length seq_len max_model_len max_model_length vllm_max_model_length',
  ],
  [
    'write generator.max_sequence_length',
    'max_total_sequence_length rollout_max_context_len max_context_length',
  ],
  [
    'write generator.max_turns',
    'max_assistant_turns max_user_turns max_tool_calling_iterations max_rollout_turns max_steps_per_episode',
  ],
  ['write generator.max_output_chars, in characters', 'max_tool_response_length'],
  [
    always,
    'multi_turn.enable tool_response_truncate_side do_sample return_raw_chat shuffle shuffle_dataset validation_shuffle',
  ],
  [
    environments,
    'tool_config_path interaction_config_path tools env_name env_class environment_factory env_id env_kwargs env_args',
  ],
  [always, 'val_before_train eval_on_start eval_at_start use_remove_padding use_dynamic_bsz balance_batch'],
  ['a prompt that does not fit is not played: remove it', 'filter_overlong_prompts truncation'],
  [
    groups,
    'generation_batch_size per_device_train_batch_size data.train_batch_size rollout_batch_size groups_per_batch batch_size',
  ],
  [groups, 'num_prompts_per_step global_batch_size prompts_per_step gradient_accumulation_steps num_groups'],
  [
    oneUpdate,
    'num_iterations steps_per_generation ppo_epochs max_epochs num_substeps ppo_mini_batch_size mini_batch_size num_steps_per_rollout',
  ],
  [
    cut,
    'per_device_eval_batch_size micro_batch_size micro_train_batch_size micro_rollout_batch_size ppo_micro_batch_size',
  ],
  [
    cut,
    'ppo_micro_batch_size_per_gpu ppo_max_token_len_per_gpu log_prob_micro_batch_size_per_gpu max_tokens_per_gpu train_micro_batch_size',
  ],
  [cut, 'log_prob_micro_batch_size log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu'],
  [
    steps,
    'total_training_steps total_steps num_steps num_training_steps num_rollout max_num_steps n_steps train_steps',
  ],
  [epochs, 'num_train_epochs total_epochs num_epochs num_episodes epochs num_epoch max_num_epochs'],
  [
    kl,
    'beta kl init_kl_coef kl_coef kl_penalty_coef kl_ctrl.kl_coef reference_policy_kl_penalty kl_coeff ppo_kl_coef kl_beta',
  ],
  [
    'write trainer.kl_estimator_type: k1, k2 or k3 (low_var_kl)',
    'kl_loss_type kl_penalty kl_estimator reference_policy_kl_type',
  ],
  [fixedReference, 'sync_ref_model ref_model_sync_steps ref_model_mixup_alpha ref_model reference_model'],
  [entropy, 'entropy_coeff entropy_coef entropy_bonus ent_coef entropy_loss_coeff'],
  [lowAndHigh, 'epsilon clip_ratio eps_clip cliprange clip_range clip_eps clip_epsilon'],
  ['write trainer.eps_clip_low', 'epsilon_low clip_ratio_low ratio_clip_min eps_clip_lower'],
  ['write trainer.eps_clip_high', 'epsilon_high clip_ratio_high ratio_clip_max eps_clip_upper clip_higher'],
  [dualClip, 'delta dual_clip ratio_clip_c eps_clip_c'],
  ['write trainer.clip_ratio_c', 'actor.clip_ratio_c'],
  [reduction, 'loss_type loss_agg_mode token_level_loss aggregation'],
  [
    'write trainer.policy_loss_type',
    'loss_mode policy_loss.loss_mode loss_fn policy_loss importance_sampling_level',
  ],
  ['write trainer.sapo.tau_pos', 'sapo_temperature_pos'],
  ['write trainer.sapo.tau_neg', 'sapo_temperature_neg'],
  ['write trainer.advantage_estimator', 'adv_estimator advantage_type advantage'],
  [
    'write trainer.grpo_norm_by_std: true or false',
    'scale_rewards norm_adv_by_std_in_grpo normalize_rewards grpo_std_normalization',
  ],
  [
    'write trainer.apply_overlong_filtering',
    'mask_truncated_completions overlong_filtering mask_overlong filter_overlong_responses',
  ],
  [
    'write trainer.dynamic_sampling: {type: filter}',
    'filter_groups use_dynamic_sampling dynamic_sampling_filter_path dynamic_filter remove_constant_reward_groups',
  ],
  [
    'write trainer.dynamic_sampling.max_sample_batches',
    'max_num_gen_batches dynamic_sampling_max_gen_batches',
  ],
  [
    'write trainer.use_tis and trainer.tis_imp_ratio_cap',
    'vllm_importance_sampling_correction vllm_importance_sampling_cap tis_clip',
  ],
  [ownSampling, 'vllm_importance_sampling_mode calculate_log_probs'],
  [
    notHere,
    'top_entropy_quantile off_policy_mask_threshold use_bias_correction_kl disable_dropout multi_objective_aggregation min_p',
  ],
  [
    notHere,
    'repetition_penalty use_pf_ppo pf_ppo presence_penalty frequency_penalty logit_bias best_of target_kl',
  ],
  [
    saves,
    'save_steps save_freq save_interval ckpt.interval ckpt_freq checkpoint_interval save_strategy save_period',
  ],
  [keeps, 'save_total_limit max_actor_ckpt_to_keep max_ckpt_num keep_top_k max_to_keep ckpt.keep_last'],
  [
    evaluations,
    'eval_steps test_freq eval_freq eval_every val_period eval_strategy evaluation_strategy eval.interval val_interval',
  ],
  [
    'write data.eval_tasks',
    'val_batch_size eval_batch_size num_eval_samples max_val_samples num_test_examples',
  ],
  [
    everyStep,
    'logging_steps logging_strategy log_completions log_interval logging_first_step log_val_generations num_completions_to_print',
  ],
  [tracker, 'report_to logging_dir use_wandb use_tensorboard log_with wandb_enabled tensorboard_dir'],
  ['write tracking.wandb.project', 'wandb_project'],
  ['write tracking.wandb.name', 'wandb_name wandb_run_name'],
  ['write tracking.wandb.entity', 'wandb_entity wandb_org wandb_team'],
  ['write project', 'project_name'],
  ['write name', 'experiment_name exp_name run_name'],
  [
    store,
    'output_dir default_local_dir log_path log_dir checkpoint_dir ckpt_dir save_path default_hdfs_dir rollout_data_dir validation_data_dir',
  ],
  [
    resumes,
    'resume_from_checkpoint resume_mode resume_from_path load_checkpoint overwrite_output_dir resume',
  ],
  [exported, 'push_to_hub hub_model_id hub_strategy save_hf_interval'],
  [
    modelPath,
    'model_name_or_path model_path model_id base_model pretrain hf_checkpoint actor_model_name_or_path rollout_ref.model.path',
  ],
  ['write model.tokenizer', 'tokenizer_name tokenizer_path tokenizer_name_or_path'],
  ['write model.chat_template', 'custom_chat_template chat_template_path'],
  ['write model.lora.rank', 'lora_r lora_rank lora.r peft_config.r lora_config.r peft.r'],
  ['write model.lora.alpha', 'lora_alpha'],
  ['write model.lora.targets, or nothing for all of them', 'lora_target_modules target_modules lora_targets'],
  [notHere, 'lora_dropout lora.bias lora.task_type peft_config.bias peft_config.task_type exclude_modules'],
  ['write model.lora: {rank, alpha}', 'use_peft peft_config use_lora lora_config'],
  [
    tasks,
    'dataset_name dataset_path train_files val_files prompt_data train_data eval_data dataset train_dataset eval_dataset',
  ],
  [tasks, 'dataset_train_split dataset_test_split dataset_config'],
  [
    columns,
    'prompt_key input_key label_key reward_fn_key image_key video_key remove_unused_columns apply_chat_template',
  ],
  [grades, 'reward_funcs reward_weights reward_functions reward_fn rm_type remote_rm_url verifier_url'],
  [
    noCritic,
    'critic_warmup critic_learning_rate lam cliprange_value value_loss_coef vf_coef max_critic_ckpt_to_keep gae_lambda',
  ],
  [
    placed,
    'gradient_checkpointing enable_gradient_checkpointing bf16 fp16 tf32 torch_dtype dtype attn_implementation device',
  ],
  [
    placed,
    'trust_remote_code use_liger use_liger_kernel torch_compile use_torch_compile load_in_4bit load_in_8bit strategy nnodes n_gpus_per_node',
  ],
  [
    placed,
    'ddp_timeout dataloader_num_workers ds3_gather_for_generation zero_stage hybrid_engine nccl_timeout tensor_parallel_size',
  ],
  [
    placed,
    'tensor_model_parallel_size ulysses_sequence_parallel_size cast_lm_head_to_fp32 gpus_per_node num_gpus use_fused_kernels',
  ],
  [
    placed,
    'enable_activation_offload use_shm external_lib num_processes actor_num_gpus_per_node ray_wait_register_center_timeout',
  ],
  [
    ownSampling,
    'use_vllm vllm_mode vllm_model_impl vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port',
  ],
  [
    ownSampling,
    'vllm_gpu_memory_utilization vllm_tensor_parallel_size vllm_enable_sleep_mode use_transformers_paged cache_implementation',
  ],
  [
    ownSampling,
    'rollout.name rollout.mode gpu_memory_utilization load_format enforce_eager free_cache_engine max_num_batched_tokens max_num_seqs',
  ],
  [
    ownSampling,
    'vllm_structured_outputs_regex vllm_num_engines enable_chunked_prefill ignore_eos sglang_mem_fraction_static',
  ],
  [toolFormat, 'multi_turn.format tool_call_parser tool_parser tool_call_format function_call_parser'],
  [
    'the model’s own template is used, and sampled tokens are never tokenized again: remove it',
    'renderer_name use_inference_chat_template tokenization_sanity_check_mode',
  ],
];

const plain = (part: string): string => part.toLowerCase().replaceAll(/[-_\s]/g, '');
const plainPath = (path: string): string => path.split('.').map(plain).join('.');

const remedies = new Map(
  names.flatMap(([remedy, list]) => list.split(' ').map((name) => [plainPath(name), remedy] as const)),
);
const remediesOfParts = new Map(Object.entries(parts).map(([part, remedy]) => [plain(part), remedy]));

/** All remedies, for tests. */
export function namesOfTrainers(): string[] {
  return [...new Set([...remedies.values(), ...remediesOfParts.values()])];
}

/**
 * What to write instead of a setting of another trainer, which may be spelt with other separators or capitals; null if no trainer has it.
 * The longest end of the path counts: `rollout.n` also as `actor_rollout_ref.rollout.n`.
 */
export function remedyOf(path: readonly string[]): string | null {
  const spelt = path.map(plain);
  for (const part of spelt) {
    const remedy = remediesOfParts.get(part);
    if (remedy !== undefined) return remedy;
  }
  for (let from = 0; from < spelt.length; from += 1) {
    const remedy = remedies.get(spelt.slice(from).join('.'));
    if (remedy !== undefined) return remedy;
  }
  return null;
}

/** True if nothing below such a key has a place here. */
export function isWithoutPlace(key: string): boolean {
  return remediesOfParts.has(plain(key));
}

/** The key that a setting of another trainer stands for, such as `trainer.lr` for `learning_rate`. Null if no one key does. */
export function keyOf(path: readonly string[]): string | null {
  return /^write ((?:[a-z_]+\.)*[a-z_]+)(?![\w.])/.exec(remedyOf(path) ?? '')?.[1] ?? null;
}
