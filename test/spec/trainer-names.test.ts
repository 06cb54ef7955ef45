// Settings of other trainers in a spec: each error names an existing key to use, and mentions secrets only for a key that may hold one.
import { parse } from 'yaml';
import { describe, expect, test } from 'vitest';
import { withSettings } from '../../src/cli/train/spec-settings.js';
import { parseDatasetSpec } from '../../src/spec/dataset-spec.js';
import { InvalidSpec, type SpecProblem } from '../../src/spec/invalid-spec.js';
import { runSpecSchema } from '../../src/spec/schema.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { allKeyPaths } from '../../src/spec/spec-issues.js';
import { toolFormatNames } from '../../src/spec/tool-format-names.js';
import { namesOfTrainers, remedyOf } from '../../src/spec/names/trainer-names.js';

function problemsOf(check: () => unknown): readonly SpecProblem[] {
  try {
    check();
  } catch (error) {
    if (error instanceof InvalidSpec) return error.problems;
    throw error;
  }
  return [];
}

const sound = {
  name: 'run',
  model: { name: 'm', path: '/models/m' },
  data: { tasks: '/data/tasks.jsonl' },
  environments: [{ env_key: 'crm', url: 'http://10.0.0.5:8000' }],
  trainer: { max_training_steps: 10 },
};

/** The fix in the error for a setting that is added to a valid spec. */
const fixOf = (setting: string): string => {
  const problems = problemsOf(() => parseRunSpec(withSettings(sound, [setting])));
  const unknown = problems.filter(({ problem }) => problem.startsWith('there is no key'));
  expect(unknown.length, setting).toBe(1);
  return unknown[0]?.fix ?? '';
};

describe('a key of another trainer is answered with the key to use', () => {
  test.each([
    ['trainer.learning_rate=1e-6', 'trainer.lr'],
    ['learning_rate=1e-6', 'trainer.lr'],
    ['trainer.num_generations=8', 'generator.n_samples_per_prompt'],
    ['trainer.beta=0.04', 'trainer.kl_loss_coef'],
    ['trainer.epsilon=0.2', 'trainer.eps_clip_low'],
    ['trainer.epsilon_high=0.28', 'trainer.eps_clip_high'],
    ['trainer.save_steps=50', 'trainer.ckpt_interval'],
    ['trainer.max_completion_length=512', 'generator.max_generate_length'],
    ['generator.max_completion_length=512', 'generator.max_generate_length'],
    ['generator.max_new_tokens=512', 'generator.max_generate_length'],
    ['generator.max_tokens=512', 'generator.max_generate_length'],
    ['generator.max-new-tokens=512', 'generator.max_generate_length'],
    ['rollout.n=8', 'generator.n_samples_per_prompt'],
    ['actor_rollout_ref.rollout.n=8', 'generator.n_samples_per_prompt'],
    ['actor_rollout_ref.rollout.multi_turn.max_assistant_turns=8', 'generator.max_turns'],
    ['actor_rollout_ref.actor.optim.lr=1e-6', 'trainer.lr'],
    ['actor_rollout_ref.actor.clip_ratio_high=0.28', 'trainer.eps_clip_high'],
    ['actor_rollout_ref.model.path=Qwen/Qwen3-8B', 'model.path'],
    ['algorithm.adv_estimator=grpo', 'trainer.advantage_estimator'],
    ['trainer.total_epochs=15', 'trainer.max_training_steps'],
    ['trainer.total_training_steps=15', 'trainer.max_training_steps'],
    ['trainer.save_freq=20', 'trainer.ckpt_interval'],
    ['trainer.test_freq=5', 'trainer.eval_interval'],
    ['trainer.n_gpus_per_node=8', 'remove it'],
    ['data.train_files=train.parquet', 'data.tasks'],
    ['data.train_batch_size=64', 'trainer.train_batch_size'],
    ['data.max_response_length=1024', 'generator.max_generate_length'],
    ['model.lora.r=16', 'model.lora.rank'],
    ['trainer.per_device_train_batch_size=4', 'trainer.train_batch_size'],
    ['trainer.mask_truncated_completions=true', 'trainer.apply_overlong_filtering'],
    ['trainer.rollout_batch_size=64', 'trainer.train_batch_size'],
    ['trainer.init_kl_coef=0.01', 'trainer.kl_loss_coef'],
    ['generator.generate_max_len=1024', 'generator.max_generate_length'],
    ['trainer.groups_per_batch=64', 'trainer.train_batch_size'],
    ['grpo.num_prompts_per_step=32', 'trainer.train_batch_size'],
    ['critic.optim.lr=1e-5', 'no critic'],
    ['reward_model.enable=false', 'environment'],
    ['optim.lr=1e-6', 'trainer.lr'],
    ['top_k=20', 'write generator.top_k with generator.truncated_sampling'],
    ['trainer.top_p=0.9', 'write generator.top_p with'],
    ['trainer.kl=0.01', 'trainer.kl_loss_coef'],
    ['max_tokens=512', 'write generator.max_generate_length'],
    ['trainer.max_tokens=512', 'write generator.max_generate_length'],
    ['packing_samples=true', 'packs'],
    ['trainer.packing=true', 'packs'],
    ['data.path=a.parquet', 'write data.tasks'],
    ['data.custom_cls.path=a.py', 'data.tasks'],
    ['data.train=a.jsonl', 'write data.tasks'],
    ['data.validation=a.jsonl', 'write data.tasks'],
    ['data.seed=3', 'write seed at the top'],
    ['generator.seed=3', 'write seed at the top'],
    ['trainer.data_seed=3', 'write seed at the top'],
    ['generator.enable_thinking=false', 'generator.chat_template_kwargs'],
    ['enable_thinking=false', 'generator.chat_template_kwargs'],
    ['generator.thinking=false', 'generator.chat_template_kwargs'],
    ['generator.reasoning_effort=low', 'generator.chat_template_kwargs'],
    ['data.apply_chat_template_kwargs.enable_thinking=false', 'generator.chat_template_kwargs'],
    ['n-samples-per-prompt=8', 'generator.n_samples_per_prompt'],
    ['eps-clip-high=0.28', 'trainer.eps_clip_high'],
    ['eps-clip=0.2', 'trainer.eps_clip_low'],
    ['use-kl-loss=true', 'trainer.use_kl_loss'],
    ['kl-loss-coef=0.01', 'trainer.kl_loss_coef'],
    ['weight-decay=0.1', 'trainer.weight_decay'],
    ['trainer.environment_factory=x', 'write environments'],
    ['trainer.rollout_func=x', 'generator.max_turns'],
    ['trainer.lr_scheduler_kwargs.min_lr=1', 'constant'],
    ['actor_rollout_ref.rollout.agent.num_workers=8', 'generator.max_turns'],
    ['actor_rollout_ref.actor.checkpoint.save_contents=x', 'checkpoint'],
    ['async_training.staleness_threshold=0.5', 'newest policy'],
    ['trainer.max_async_level=2', 'newest policy'],
    ['model.rope_scaling.rope_theta=1000000', 'config.json'],
    ['tool_call_parser=hermes', 'write generator.tool_format'],
    ['actor_rollout_ref.rollout.multi_turn.format=hermes', 'write generator.tool_format'],
    ['trainer.kl=0.1', 'trainer.kl_loss_coef'],
    ['top_k=20', 'generator.top_k'],
    ['trainer.top_p=0.9', 'generator.top_p'],
    ['max_tokens=512', 'generator.max_generate_length'],
    ['trainer.max_tokens=512', 'generator.max_generate_length'],
    ['data.path=x', 'data.tasks'],
    ['data.train=x', 'data.tasks'],
    ['data.custom_cls.path=x', 'data.tasks'],
    ['packing=true', 'packs'],
    ['generator.enable_thinking=false', 'generator.chat_template_kwargs'],
    ['reasoning_effort=low', 'generator.chat_template_kwargs'],
    ['n-samples-per-prompt=8', 'write generator.n_samples_per_prompt'],
    ['trainer.eps-clip-high=0.28', 'write trainer.eps_clip_high'],
    ['use-kl-loss=true', 'write trainer.use_kl_loss'],
    ['kl-loss-coef=0.1', 'write trainer.kl_loss_coef'],
    ['weight-decay=0.1', 'trainer.weight_decay'],
    ['environment_factory=x', 'environments'],
    ['rollout_func=x', 'environments'],
    ['data_seed=1', 'seed at the top'],
    ['lr_scheduler_kwargs=x', 'constant'],
    ['actor_rollout_ref.rollout.agent.num_workers=8', 'environments'],
    ['actor_rollout_ref.actor.checkpoint.save_contents=x', 'whole state'],
    ['async_training.staleness_threshold=1', 'newest policy'],
    ['max_async_level=2', 'newest policy'],
  ])('%s: %s', (setting, key) => {
    expect(fixOf(setting)).toContain(key);
    expect(fixOf(setting)).not.toMatch(/secret|^keys here/);
  });

  test.each([
    ['trainer.top_q=1'],
    ['krk=1'],
    ['model.foo.path=x'],
    ['data.foo.train=x'],
    ['generator.run=x'],
    ['trainer.loss.type=x'],
    ['env.type=x'],
  ])('for %s, which resembles no key, no key is suggested', (setting) => {
    expect(fixOf(setting)).not.toMatch(/did you mean|it belongs at/);
  });

  test.each([
    ['qwen3_coder', 'qwen_xml'],
    ['qwen3_xml', 'qwen_xml'],
    ['harmony', 'gpt_oss'],
    ['openai', 'gpt_oss'],
    ['llama3_json', 'llama_json'],
  ])('the tool format %s of an inference engine is called %s here', (tool_format, name) => {
    const [problem] = problemsOf(() => parseRunSpec({ ...sound, generator: { tool_format } }));
    expect(problem).toMatchObject({
      path: 'generator.tool_format',
      fix: expect.stringContaining(name) as string,
    });
  });

  test('each key that is named exists', () => {
    const known = new Set(allKeyPaths(runSpecSchema).map((path) => path.replaceAll('[]', '')));
    const named =
      /\b(?:trainer|generator|data|model|retention|placement|tracking|environments)\.[a-z][a-z_0-9.]*[a-z_0-9]/g;
    const found = namesOfTrainers().flatMap((fix) => fix.match(named) ?? []);
    expect(found.length).toBeGreaterThan(60);
    for (const path of found) expect(known.has(path), path).toBe(true);
  });

  test('for a key of another list, the error names its place', () => {
    const warm = { name: 'format', demonstrations: 'expert', updates: 10, learning_rate: 1e-5 };
    const [problem] = problemsOf(() => parseRunSpec({ ...sound, warm_start: [warm] }));
    expect(problem).toMatchObject({ path: 'warm_start[0].learning_rate', fix: 'write warm_start[0].lr' });
  });

  test('a teacher’s key is named in the dataset’s own file, and no key of a run is', () => {
    const teacher = { url: 'http://10.0.0.7/v1', model: 'm', max_tokens: 1000, max_new_tokens: 512 };
    const [problem] = problemsOf(() =>
      parseDatasetSpec({ name: 'crm', version: 'v1', tasks: '/t.jsonl', teacher }),
    );
    expect(problem?.fix).toBe('write teacher.max_generate_length');
    const [other] = problemsOf(() =>
      parseDatasetSpec({ name: 'crm', version: 'v1', tasks: '/t.jsonl', env_key: 'crm' }),
    );
    expect(other?.fix).toBe('did you mean env_keys?');
  });

  test('verl’s whole file gets a remedy for each problem', () => {
    const problems = problemsOf(() => parseRunSpec(parse(verl)));
    expect(problems.length).toBeGreaterThan(25);
    for (const { path, problem, fix } of problems) {
      if (problem === 'is missing') continue;
      expect(fix, path).not.toBe('');
      expect(fix, path).not.toMatch(/^keys here:|secret/);
    }
  });
});

describe('a secret', () => {
  test.each([
    'hf_token=hf_1',
    'trainer.hub_token=hf_1',
    'wandb_api_key=k',
    'generator.api_token=k',
    'password=k',
  ])('%s is refused as one', (setting) => expect(fixOf(setting)).toContain('must not hold secrets'));

  test.each([
    'trainer.num_tokens=5',
    'generator.tokens_per_second=5',
    'model.eos_token=x',
    'model.pad_token_id=5',
    'generator.skip_special_tokens=true',
    'model.tokenizer_name=x',
    'trainer.token_level_loss=true',
    'trainer.log_tokens=true',
  ])('%s is none', (setting) => expect(fixOf(setting)).not.toContain('secret'));
});

const verl = `
actor_rollout_ref:
  actor:
    strategy: fsdp
    ppo_mini_batch_size: 256
    ppo_micro_batch_size_per_gpu: 4
    use_dynamic_bsz: false
    clip_ratio: 0.2
    clip_ratio_c: 3.0
    loss_agg_mode: token-mean
    entropy_coeff: 0
    use_kl_loss: true
    kl_loss_coef: 0.001
    kl_loss_type: low_var_kl
    ppo_epochs: 1
    optim: { lr: 1.0e-6, lr_warmup_steps: -1, weight_decay: 0.01 }
    grad_clip: 1.0
    fsdp_config: { param_offload: false }
  ref: { strategy: fsdp, log_prob_micro_batch_size_per_gpu: 8 }
  rollout:
    name: vllm
    mode: async
    temperature: 1.0
    n: 5
    response_length: 1024
    gpu_memory_utilization: 0.6
    tensor_model_parallel_size: 2
    val_kwargs: { temperature: 0, n: 1 }
    multi_turn: { enable: true, max_assistant_turns: 8, tool_config_path: t.yaml, format: hermes, max_tool_response_length: 256 }
  model: { path: Qwen/Qwen3-8B, enable_gradient_checkpointing: true, lora_rank: 32, lora_alpha: 32, target_modules: all-linear }
data:
  train_files: train.parquet
  val_files: test.parquet
  prompt_key: prompt
  max_prompt_length: 512
  max_response_length: 1024
  train_batch_size: 256
  return_raw_chat: true
critic: { optim: { lr: 1.0e-5 } }
reward_model: { enable: false }
custom_reward_function: { path: null, name: compute_score }
algorithm: { gamma: 1.0, lam: 1.0, adv_estimator: grpo, use_kl_in_reward: false, kl_ctrl: { kl_coef: 0.001 } }
trainer:
  total_epochs: 15
  project_name: verl
  experiment_name: gsm8k
  logger: [console, wandb]
  nnodes: 1
  n_gpus_per_node: 8
  save_freq: 20
  resume_mode: auto
  test_freq: 5
  critic_warmup: 0
  val_before_train: true
  default_local_dir: checkpoints/a
ray_init: { num_cpus: null }
`;

test('a setting that exists here is not removed under its own name', () => {
  const own = new Set(allKeyPaths(runSpecSchema).map((path) => path.split('.').at(-1) ?? ''));
  const removed = [...own].filter((key) => /remove it$/.test(remedyOf([key]) ?? ''));
  // Here these are keys of an environment and of a warm start; other trainers mean something else by them.
  expect(removed).toEqual(['reward', 'mini_batch_size']);
});

describe('a value of another engine is answered with its name here', () => {
  test.each([
    ['tool_format', 'qwen3_coder', 'its name here is qwen_xml'],
    ['tool_format', 'qwen3_xml', 'its name here is qwen_xml'],
    ['tool_format', 'Qwen3-Coder', 'its name here is qwen_xml'],
    ['tool_format', 'llama3_json', 'its name here is llama_json'],
    ['tool_format', 'qwen25', 'its name here is hermes'],
    ['tool_format', 'openai', 'its name here is gpt_oss'],
    ['tool_format', 'harmony', 'its name here is gpt_oss'],
    ['tools_format', 'hermes', 'write generator.tool_format: hermes'],
  ])('generator.%s: %s', (key, value, fix) => {
    const [problem] = problemsOf(() => parseRunSpec({ ...sound, generator: { [key]: value } }));
    expect(problem?.fix).toContain(fix);
  });
});

test.each<[object, string, string]>([
  [{ a: null }, 'generator.chat_template_kwargs.a', 'must be text or a number or true or false, not null'],
  [{ a: [1] }, 'generator.chat_template_kwargs.a', 'must be text or a number or true or false, not [1]'],
  [
    { 'enable-thinking': false },
    'generator.chat_template_kwargs.enable-thinking',
    'is not a name of a template’s variable',
  ],
])('variables of the template %j', (chat_template_kwargs, path, words) => {
  const [problem] = problemsOf(() => parseRunSpec({ ...sound, generator: { chat_template_kwargs } }));
  expect(problem).toMatchObject({ path, problem: words });
});

test('no_call: "0" is not answered with itself', () => {
  const environments = [{ env_key: 'crm', url: 'http://10.0.0.5:8000', no_call: '0' }];
  expect(problemsOf(() => parseRunSpec({ ...sound, environments }))[0]?.fix).not.toContain('"0"');
});

test('the remedy for a tool parser names every tool format', () => {
  for (const name of toolFormatNames) expect(remedyOf(['tool_parser'])).toContain(name);
});
