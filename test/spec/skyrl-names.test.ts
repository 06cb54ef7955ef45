// A configuration of SkyRL, pasted whole: each problem says what to write instead, and names only keys that exist.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parse } from 'yaml';
import { describe, expect, test } from 'vitest';
import { InvalidSpec, type SpecProblem } from '../../src/spec/invalid-spec.js';
import { runSpecSchema } from '../../src/spec/schema.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { allKeyPaths } from '../../src/spec/spec-issues.js';

function problemsOf(input: unknown): readonly SpecProblem[] {
  try {
    parseRunSpec(input);
  } catch (error) {
    if (error instanceof InvalidSpec) return error.problems;
    throw error;
  }
  return [];
}

const config = parse(readFileSync(resolve('test/spec/skyrl/ppo_base_config.yaml'), 'utf8')) as Record<
  string,
  Record<string, unknown>
>;
const whole = problemsOf(config);
const fixOf = (path: string, problems = whole): string | undefined =>
  problems.find((problem) => problem.path === path)?.fix;

describe('SkyRL’s whole configuration', () => {
  test('gets a remedy for each problem, and never a mere list of keys', () => {
    expect(whole.length).toBeGreaterThan(100);
    for (const { path, fix } of whole) {
      expect(fix, path).not.toBe('');
      expect(fix, path).not.toMatch(/^keys here:|^did you mean/);
    }
  });

  test('is told only of keys that exist', () => {
    const known = new Set(allKeyPaths(runSpecSchema).map((path) => path.replaceAll('[]', '')));
    const named =
      /\b(?:trainer|generator|data|model|retention|placement|environments)\.[a-z][a-z_0-9.]*[a-z_0-9]/g;
    const found = whole.flatMap(({ fix }) => fix.match(named) ?? []);
    expect(found.length).toBeGreaterThan(30);
    for (const path of found) expect(known.has(path), path).toBe(true);
  });

  test.each([
    ['trainer.policy.optimizer_config.lr', 'write trainer.lr'],
    ['trainer.policy.optimizer_config.num_warmup_steps', 'write trainer.warmup_steps'],
    ['trainer.policy.model.path', 'write model.path: a folder'],
    ['trainer.algorithm.eps_clip_high', 'write trainer.eps_clip_high'],
    ['trainer.algorithm.use_kl_in_reward', 'the KL term is part of the loss'],
    ['generator.apply_overlong_filtering', 'write trainer.apply_overlong_filtering'],
    ['trainer.epochs', 'write trainer.max_training_steps'],
    ['trainer.resume_mode', 'a run with records always goes on'],
    ['trainer.placement', 'the engine places the work itself'],
    ['trainer.ckpt_path', 'checkpoints are in the store'],
    ['trainer.max_ckpts_to_keep', 'write retention.keep_last'],
    ['generator.sampling_params.temperature', 'write generator.temperature'],
    ['generator.sampling_params.max_generate_length', 'write generator.max_generate_length'],
    ['generator.eval_sampling_params.temperature', 'write generator.eval_temperature, above 0'],
    ['generator.gpu_memory_utilization', 'it is an option of the inference engine'],
    ['generator.append_eos_token_after_stop_str_in_multi_turn', 'it is always so here'],
    ['generator.max_input_length', 'write the value itself'],
    ['data.train_data', 'name the task file itself in data.tasks'],
    ['environment.env_class', 'write environments: a list'],
  ])('says at %s: %s', (path, fix) => {
    expect(fixOf(path)).toContain(fix);
  });

  test('accepts evaluation settings under SkyRL’s names', () => {
    expect(fixOf('generator.eval_n_samples_per_prompt')).toBeUndefined();
    expect(fixOf('trainer.eval_interval')).toBeUndefined();
  });

  test('warns of a value that is different here, in the key that replaces it', () => {
    const problems = problemsOf({
      trainer: { algorithm: { advantage_estimator: 'gae', kl_estimator_type: 'abs' } },
    });
    expect(fixOf('trainer.algorithm.advantage_estimator', problems)).toContain('it needs a critic');
    expect(fixOf('trainer.algorithm.kl_estimator_type', problems)).toContain('use k2 or k3');
  });
});

describe('a SkyPilot file', () => {
  const problems = problemsOf({
    name: 'fleet-task-grpo',
    resources: { disk_size: 200 },
    num_nodes: 1,
    workdir: { ref: 'main' },
    envs: {
      ENV_KEYS: 'github',
      DATA_VERSION: 'v4',
      S3_CHECKPOINT_BUCKET: 'b',
      WANDB_API_KEY: 'k',
      LOGGER: 'wandb',
    },
    setup: 'uv sync',
    run: 'python -m main',
  });

  test('gets a remedy for each key, and for each variable in it', () => {
    expect(fixOf('envs.ENV_KEYS', problems)).toBe('write data.env_keys');
    expect(fixOf('envs.DATA_VERSION', problems)).toContain('data.tasks: s3://BUCKET/VERSION/');
    expect(fixOf('envs.S3_CHECKPOINT_BUCKET', problems)).toContain('longhaul up --store s3://BUCKET');
    expect(fixOf('envs.LOGGER', problems)).toContain('tracking.wandb');
    expect(fixOf('envs.WANDB_API_KEY', problems)).toContain('must not hold secrets');
    for (const path of ['resources', 'num_nodes', 'workdir', 'setup', 'run'])
      expect(fixOf(path, problems), path).toContain('SkyPilot');
  });
});

test('a secret in SkyRL’s environment is refused as a secret', () => {
  const environment = { skyrl_gym: { fleet_task: { api_key: 'sk-1', ttl_seconds: 600 } } };
  const problems = problemsOf({ environment });
  expect(fixOf('environment.skyrl_gym.fleet_task.api_key', problems)).toContain('must not hold secrets');
  expect(JSON.stringify(problems)).not.toContain('sk-1');
});
