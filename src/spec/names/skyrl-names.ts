// SkyRL's names that differ from ours, and those of SkyRL Fleet Training. Each remedy says which names to write instead.
import { isObject } from '../../base/json.js';
import { isSecretKey } from '../../base/secrets.js';
import { type ToolFormatName, toolFormatNames } from '../tool-format-names.js';
import { isWithoutPlace, remedyOf } from './trainer-names.js';

/** Inputs of the launch workflows that set a key of ours. */
export const launchInputs: Record<string, string> = {
  max_steps: 'trainer.max_training_steps',
  batch_size: 'trainer.train_batch_size',
  n_samples: 'generator.n_samples_per_prompt',
  n_samples_per_prompt: 'generator.n_samples_per_prompt',
  max_turns: 'generator.max_turns',
  max_input_length: 'generator.max_input_length',
  max_generate_length: 'generator.max_generate_length',
};

/** What vLLM, SGLang and verl call the forms of tool calls. */
const parsers: Record<ToolFormatName, string> = {
  hermes: 'json qwen qwen25 qwen2_5 qwen3',
  qwen_xml: 'xml qwen3_coder qwen3_xml qwen3coder',
  llama_json: 'llama llama3 llama3_json llama4_json',
  mistral: 'mistral_json',
  gpt_oss: 'openai harmony gptoss',
};
const isCalled = Object.fromEntries(
  Object.entries(parsers).flatMap(([name, others]) =>
    others.split(' ').map((other) => [other, `its name here is ${name}`] as const),
  ),
);

/** Values of other trainers that are different here, by the last part of the key's path. */
const values: Record<string, Record<string, string>> = {
  tool_format: isCalled,
  tools_format: Object.fromEntries(
    toolFormatNames.map((name) => [
      name,
      `tools_format is how the prompt lists the tools; write generator.tool_format: ${name} for how the model calls them`,
    ]),
  ),
  advantage_estimator: {
    gae: 'it needs a critic, and Longhaul trains none: use grpo, rloo, reinforce++ or maxrl',
    group_norm: 'its name here is grpo',
    dr_grpo: 'write grpo, and grpo_norm_by_std: false',
    reinforce_plus_plus: 'its name here is reinforce++',
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
    vanilla: 'its name here is regular',
    grpo: 'its name here is regular; advantage_estimator: grpo makes it GRPO',
    dapo: 'write regular with a larger eps_clip_high, and dynamic_sampling: {type: filter}',
    ppo_critic: 'no critic is trained here',
    importance_sampling: 'use reinforce: it is the same if a batch is used for one update only, as here',
    cross_entropy: 'it would also imitate failures; for supervised phases see warm_start',
  },
  loss_reduction: {
    token_mean_legacy: 'token_mean is the mean over a whole mini-batch, however it is cut to fit into memory',
    prompt_mean: 'sequence_mean gives each sample, and so each group, the same weight',
    seq_mean: 'its name here is sequence_mean',
    'seq-mean-token-mean': 'its name here is sequence_mean',
    grpo: 'its name here is sequence_mean',
    dapo: 'its name here is token_mean',
    bnpo: 'its name here is token_mean',
    dr_grpo: 'write seq_mean_token_sum_norm, and grpo_norm_by_std: false',
  },
  kl_estimator_type: {
    abs: 'use k2 or k3, which are never negative either',
    low_var_kl: 'its name here is k3',
    kl: 'its name here is k1',
    mse: 'its name here is k2',
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

const ofGpus = 'it places the work on GPUs, which the engine does itself: remove it';
const ofTheServer =
  'it is an option of the inference engine, and Longhaul’s engine samples itself: remove it';
const ofTheCritic = 'no critic is trained here: remove it';
const ofScripts =
  'it belongs to SkyPilot, and a stack of your own takes its place; `longhaul train SPEC KEY=VALUE …` takes the settings of its command line';
const always = 'it is always so here: remove it';
const neverHere = 'there is none here: remove it';

/** SkyRL's paths. A path below one that is listed has the remedy of the nearest listed path above it. */
const paths: Record<string, string> = {
  defaults: 'remove it: a spec is one file',
  'data.train_data':
    'name the task file itself in data.tasks; data.split holds tasks out as prepare_dataset.py does',
  'data.val_data': 'data.split, or "split": "held_out" in a task, says which tasks are held out',

  'trainer.placement':
    'the engine places the work itself: remove it; placement.nodes at the top shares the rollouts of a step',
  'trainer.strategy': ofGpus,
  'trainer.sequence_parallel_backend': ofGpus,
  'trainer.policy': ofGpus,
  'trainer.policy.model.path': 'write model.path: a folder with config.json and safetensors',
  'trainer.policy.model.lora': 'write model.lora: {rank, alpha}, or nothing where its rank is 0',
  'trainer.policy.model.lora.rank': 'write model.lora.rank, or no model.lora where it is 0',
  'trainer.policy.model.lora.alpha': 'write model.lora.alpha, or no model.lora where the rank is 0',
  'trainer.policy.model.lora.target_modules': 'write model.lora.targets, or nothing for all of them',
  'trainer.policy.optimizer_config': 'the optimizer’s settings belong directly under trainer',
  'trainer.policy.optimizer_config.lr': 'write trainer.lr',
  'trainer.policy.optimizer_config.adam_betas': 'write trainer.adam_betas',
  'trainer.policy.optimizer_config.weight_decay': 'write trainer.weight_decay',
  'trainer.policy.optimizer_config.max_grad_norm': 'write trainer.max_grad_norm',
  'trainer.policy.optimizer_config.num_warmup_steps': 'write trainer.warmup_steps',
  'trainer.policy.optimizer_config.scheduler': 'the rate is constant after trainer.warmup_steps: remove it',
  'trainer.policy.optimizer_config.offload_after_step': ofGpus,
  'trainer.ref': 'trainer.use_kl_loss keeps the policy that GRPO begins with as its reference: remove it',
  'trainer.critic': ofTheCritic,
  'trainer.critic_mini_batch_size': ofTheCritic,
  'trainer.algorithm': 'its keys belong directly under trainer',
  'trainer.algorithm.tis_imp_ratio_cap':
    'write trainer.tis_imp_ratio_cap, above 0; leave it out where it is -1',
  'trainer.fully_async': 'every step samples with the newest policy, so nothing is stale: remove it',
  'trainer.gradient_checkpointing': ofGpus,
  'trainer.gradient_checkpointing_use_reentrant': ofGpus,
  'trainer.bf16': 'the engine chooses its number formats: remove it; model.moments sets that of the moments',
  'trainer.flash_attn': ofGpus,
  'trainer.use_sample_packing': always,
  'trainer.micro_forward_batch_size_per_gpu': 'the engine cuts a batch to fit into its memory: remove it',
  'trainer.target_modules': 'write model.lora.targets, or nothing for all of them',
  'trainer.exclude_modules': 'write the others in model.lora.targets, or nothing for all of them',
  'trainer.rope_scaling': 'write model.rope_scaling; leave it out where it is null',
  'trainer.rope_theta':
    'write it into config.json of the folder in model.path, or into model.architecture.rope_theta',
  'model.rope_scaling.rope_theta': 'write it as rope_theta into config.json of the folder in model.path',
  'trainer.disable_fast_tokenizer': 'tokenizer.json is always read, which is the fast one: remove it',
  'trainer.seed': 'write seed at the top',
  'trainer.epochs': 'write trainer.max_training_steps: epochs × training tasks / trainer.train_batch_size',
  'trainer.max_steps': 'write trainer.max_training_steps',
  'trainer.max_prompt_length':
    'write generator.max_input_length, which covers the whole transcript before a turn',
  'trainer.use_hybrid_env_sampling':
    'write trainer.balance: env, which gives every environment as many groups',
  'trainer.min_samples_per_env': 'write trainer.balance: env, which gives every environment as many groups',
  'trainer.update_ref_every_epoch': 'the reference of trainer.use_kl_loss never changes: remove it',
  'trainer.eval_batch_size': 'a suite is played as a whole: remove it; data.eval_tasks is its size',
  'trainer.eval_before_train': always,
  'trainer.dump_data_batch': 'every batch is a record of the store: remove it',
  'trainer.dump_eval_results': 'every evaluation is written below trajectories/ of the store: remove it',
  'trainer.resume_mode':
    'a run with records always goes on with them: remove it; another name makes a new run',
  'trainer.resume_path': 'remove it; `longhaul fork RUN@STEP --name NEW` begins at a checkpoint',
  'trainer.ckpt_path': 'checkpoints are in the store, which `longhaul up --store` names: remove it',
  'trainer.export_path': 'remove it; `longhaul export RUN` writes a model folder',
  'trainer.hf_save_interval': 'remove it; `longhaul export RUN` writes a model folder of any checkpoint',
  'trainer.max_ckpts_to_keep': 'write retention.keep_last; leave it out where it is -1',
  'trainer.eval_n_samples_per_prompt': 'write generator.eval_n_samples_per_prompt',

  'generator.model_name': 'write model.name at the top, and the folder in model.path',
  'generator.chat_template': 'name the template file in model.chat_template, or nothing for the model’s own',
  'generator.trajectory_timeout_seconds':
    'write generator.call_timeout_s, which limits each call, and generator.max_turns',
  'generator.inject_context_status': neverHere,
  'generator.sampling_params': 'its keys belong directly under generator',
  'generator.sampling_params.max_generate_length':
    'write generator.max_generate_length, the most tokens of one turn',
  'generator.sampling_params.temperature': 'write generator.temperature',
  'generator.sampling_params.top_p':
    'write generator.top_p with generator.truncated_sampling: true; leave it out where it is 1',
  'generator.sampling_params.top_k':
    'write generator.top_k with generator.truncated_sampling: true; leave it out where it is -1',
  'generator.sampling_params.stop': 'write generator.stop; leave it out where it is null',
  'generator.sampling_params.min_p': neverHere,
  'generator.sampling_params.repetition_penalty': neverHere,
  'generator.sampling_params.logprobs': always,
  'generator.eval_sampling_params':
    'evaluations have generator.eval_temperature alone, the rest is that of training',
  'generator.eval_sampling_params.temperature':
    'write generator.eval_temperature, above 0; leave it out where it is 0: the samples of a task would all be the same',
  'generator.eval_sampling_params.max_generate_length':
    'it is that of training, generator.max_generate_length: remove it',
  'generator.eval_sampling_params.stop': 'it is that of training, generator.stop: remove it',
  'generator.eval_sampling_params.top_p': 'evaluations sample from the full distribution: remove it',
  'generator.eval_sampling_params.top_k': 'evaluations sample from the full distribution: remove it',
  'generator.eval_sampling_params.min_p': neverHere,
  'generator.eval_sampling_params.repetition_penalty': neverHere,
  'generator.eval_sampling_params.logprobs': always,
  'generator.use_conversation_multi_turn': always,
  'generator.append_eos_token_after_stop_str_in_multi_turn': always,
  'generator.zero_reward_on_non_stop': 'the environment’s grade counts, however an episode ended: remove it',
  'generator.apply_overlong_filtering': 'write trainer.apply_overlong_filtering',
  'generator.step_wise_trajectories':
    'a transcript is one sample, with the very tokens that were sampled: remove it',
  'generator.rope_scaling': 'write model.rope_scaling; leave it out where it is null',
  'generator.rope_theta':
    'write it into config.json of the folder in model.path, or into model.architecture.rope_theta',

  environment: 'write environments: a list with env_key and url of each OpenEnv server, or kind: fleet',
  'environment.env_class':
    'write environments: a list with env_key and url of each OpenEnv server, or kind: fleet',
  'environment.skyrl_gym':
    'write environments: a list with env_key and url of each OpenEnv server, or kind: fleet',
  'environment.skyrl_gym.fleet_task.tasks_file': 'write data.tasks',
  'environment.skyrl_gym.fleet_task.ttl_seconds': 'write environments[].ttl_s beside kind: fleet',

  // Inputs of the launch workflows, and the variables that they set.
  env_key: 'write data.env_keys: [NAME]',
  env_keys: 'write data.env_keys',
  modality: 'write data.modality',
  difficulty: 'write data.difficulty: [1, 2]',
  max_tasks: 'write data.max_tasks',
  ...Object.fromEntries(Object.entries(launchInputs).map(([name, key]) => [name, `write ${key}`])),
  model_name:
    'write model.path: a folder with config.json and safetensors; or model.served.name on a Tinker server',
  data_version:
    'a version is a part of the file’s address: data.tasks: s3://BUCKET/VERSION/openenv/all_tool_use.json',
  num_epochs: 'write trainer.max_training_steps: epochs × training tasks / trainer.train_batch_size',
  run_id: 'write name',
  logger: 'name each tracker: tracking.wandb, tracking.tensorboard, tracking.metrics_jsonl',
  resume_run_name: 'remove it; `longhaul train --run RUN` continues a run from its records',
  task_name: 'remove it: the spec is the task’s file',
  cloud: ofScripts,
  disable_slack: 'remove it: without the key slack nothing is posted',
  inference_backend: ofTheServer,
  s3_dataset_bucket: 'name the whole address in data.tasks: s3://BUCKET/VERSION/openenv/all_tool_use.json',
  s3_checkpoint_bucket:
    'name one store: `longhaul up --store s3://BUCKET`; it has checkpoints/ and trajectories/',
  s3_trajectory_bucket:
    'name one store: `longhaul up --store s3://BUCKET`; it has checkpoints/ and trajectories/',
  aws_region: 'set the variable AWS_REGION, or end the store’s address in ?region=…',

  // Keys of a SkyPilot file.
  resources: ofScripts,
  num_nodes: ofScripts,
  workdir: ofScripts,
  file_mounts: ofScripts,
  envs: ofScripts,
  setup: ofScripts,
  run: ofScripts,
};

/** Options of vLLM and of its place on GPUs, below `generator`. */
const serverOptions = new Set(
  (
    'model_dtype run_engines_locally num_inference_engines backend weight_sync_backend ' +
    'weight_transfer_threshold_cuda_ipc_GB inference_engine_tensor_parallel_size inference_engine_pipeline_parallel_size ' +
    'inference_engine_expert_parallel_size inference_engine_data_parallel_size async_engine batched ' +
    'vllm_v1_disable_multiproc enable_prefix_caching enable_chunked_prefill max_num_batched_tokens enforce_eager ' +
    'fully_sharded_loras gpu_memory_utilization max_num_seqs remote_inference_engine_urls enable_http_endpoint ' +
    'http_endpoint_host http_endpoint_port engine_init_kwargs override_existing_update_group'
  ).split(' '),
);

/** A SkyRL key, and what to write instead. */
export interface KeyFix {
  path: PropertyKey[];
  fix: string;
}

/**
 * What to write instead of an unknown key and, if it holds a mapping that SkyRL has, of each key in it. `known`: all keys of a run spec
 * with their paths. Null if neither SkyRL nor another trainer has such a key here, and for a mapping that SkyRL lacks.
 */
export function fixesOf(
  path: readonly PropertyKey[],
  value: unknown,
  known: readonly string[],
): KeyFix[] | null {
  const name = nameOf(path);
  const isGroup = Object.keys(paths).some((other) => other.startsWith(`${name}.`)) || name === 'envs';
  if (isGroup && isObject(value) && Object.keys(value).length > 0)
    return Object.entries(value).flatMap(([key, child]): KeyFix[] => {
      const below = [...path, key];
      return fixesOf(below, child, known) ?? [{ path: below, fix: nearestFix(path) }];
    });
  if (isObject(value) && own(paths, name) === null && !isWithoutPlace(String(path.at(-1)))) return null;
  const fix = fixOf(path, value, known);
  return fix === null ? null : [{ path: [...path], fix }];
}

/** The remedy of the nearest listed path above. */
function nearestFix(path: readonly PropertyKey[]): string {
  return own(paths, nameOf(path)) ?? (path.length > 1 ? nearestFix(path.slice(0, -1)) : neverHere);
}

function fixOf(path: readonly PropertyKey[], value: unknown, known: readonly string[]): string | null {
  const name = nameOf(path);
  const key = String(path.at(-1));
  const listed = own(paths, name);
  if (listed !== null) return listed;
  if (name.startsWith('generator.') && serverOptions.has(key)) return ofTheServer;
  if (name === `envs.${key}`) return isSecretKey(key) ? secretFix : own(paths, key.toLowerCase());
  if (isSecretKey(key)) return name.includes('.skyrl_gym.') ? secretFix : own(keys, key);
  if (name === `trainer.algorithm.${key}` && known.includes(`trainer.${key}`)) {
    const fix = fixOfValue(path, value);
    return `write trainer.${key}${fix === null ? '' : `; ${fix}`}`;
  }
  return own(keys, key) ?? remedyOf(name.split('.'));
}

export const secretFix =
  'a spec must not hold secrets: docs/security.md names the variable or file for each secret';

/** The path without the indices of lists. */
function nameOf(path: readonly PropertyKey[]): string {
  return path.filter((part) => typeof part !== 'number').join('.');
}

function own(table: Readonly<Record<string, string>>, key: string): string | null {
  return Object.hasOwn(table, key) ? (table[key] as string) : null;
}

/** What to write instead of another trainer's value; null if none has such a value or it is the same here. */
export function fixOfValue(path: readonly PropertyKey[], value: unknown): string | null {
  if (typeof value !== 'string') return null;
  if (/\$\{.+\}/.test(value)) return 'write the value itself: references such as ${…} are not resolved';
  const known = values[String(path.at(-1))] ?? {};
  return own(known, value) ?? own(known, value.toLowerCase().replaceAll('-', '_'));
}
