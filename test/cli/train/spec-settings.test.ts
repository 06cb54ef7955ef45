// Settings on the command line, among them the inputs of SkyRL Fleet Training's launch workflows and a whole command line of SkyRL.
import { describe, expect, test } from 'vitest';
import { withSettings } from '../../../src/cli/train/spec-settings.js';
import { InvalidSpec } from '../../../src/spec/invalid-spec.js';
import { parseRunSpec, readSpecFile } from '../../../src/spec/spec-input.js';

const spec = {
  name: 'trial',
  model: { name: 'm', path: '/models/qwen' },
  data: { tasks: '/data/tasks.json', env_keys: ['booking'], split: {} },
  environments: [{ env_key: 'github', url: 'http://github:1' }],
  trainer: { max_training_steps: 100 },
};

const parsed = (...settings: string[]) => parseRunSpec(withSettings(spec, settings));
function problemsOf(...settings: string[]) {
  try {
    parsed(...settings);
  } catch (error) {
    if (error instanceof InvalidSpec) return error.problems;
    throw error;
  }
  return [];
}

describe('a setting', () => {
  test('takes the place of what the file says', async () => {
    const changed = parsed(
      'trainer.lr=1.0e-6',
      '++trainer.adam_betas=[0.9, 0.95]',
      'environments.0.url=http://other:2',
    );
    expect(changed.trainer).toMatchObject({ lr: 1e-6, adam_betas: [0.9, 0.95], max_training_steps: 100 });
    expect(changed.environments[0]?.url).toBe('http://other:2');
    const preset = await readSpecFile('presets/quickstart.yaml', (input) =>
      withSettings(input, ['name=mine']),
    );
    expect(preset.name).toBe('mine');
    expect(spec.trainer).toEqual({ max_training_steps: 100 });
  });

  test('is refused if it has no value, is unknown or does not fit', () => {
    expect(problemsOf('github')).toMatchObject([{ problem: '"github" is no setting' }]);
    expect(problemsOf('trainer.lrr=1')).toMatchObject([
      { path: 'trainer.lrr', fix: 'did you mean trainer.lr?' },
    ]);
    expect(problemsOf('trainer.lr=fast')).toMatchObject([{ path: 'trainer.lr' }]);
    expect(problemsOf('__proto__.polluted=1')).toHaveLength(1);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });
});

describe('the inputs of the launch workflows', () => {
  test('are applied', () => {
    const changed = parsed(
      'env_key=github',
      'difficulty=1,2',
      'max_tasks=4',
      'max_steps=10',
      'modality=tool_use',
      'batch_size=8',
    );
    expect(changed.data).toMatchObject({
      env_keys: ['github'],
      difficulty: [1, 2],
      max_tasks: 4,
      modality: 'tool_use',
    });
    expect(changed.trainer).toMatchObject({ max_training_steps: 10, train_batch_size: 8 });
    expect(parsed('ENV_KEYS=github,booking').data.env_keys).toEqual(['github', 'booking']);
  });

  test('select all tasks if they are empty or "all", as there', () => {
    const { data, trainer } = parsed('env_key=', 'difficulty=all', 'max_tasks=', 'max_steps=');
    for (const key of ['env_keys', 'difficulty', 'max_tasks'] as const) expect(data[key]).toBeUndefined();
    expect(trainer.max_training_steps).toBe(100);
  });

  test.each([
    ['data_version=v4', 'data.tasks: s3://BUCKET/VERSION/openenv/'],
    ['DATA_VERSION=v4', 'data.tasks: s3://BUCKET/VERSION/openenv/'],
    ['resume_run_name=fleet_1', 'longhaul train --run RUN'],
    ['model_name=Qwen/Qwen3-8B', 'write model.path'],
    ['task_name=openenv-fleet-grpo', 'remove it'],
  ])('are refused with what to do instead: %s', (setting, fix) => {
    expect(problemsOf(setting)).toMatchObject([{ fix: expect.stringContaining(fix) as string }]);
  });
});

test('a command line of SkyRL gets a remedy for each setting that differs, and no other problem', () => {
  const line = [
    ...["data.train_data=['/d/train.parquet']", 'environment.env_class=fleet_task'],
    ...[
      'environment.skyrl_gym.fleet_task.tasks_file=/d/tasks.json',
      'trainer.algorithm.advantage_estimator=grpo',
    ],
    ...['trainer.policy.model.path=Qwen/Qwen3-8B', '++trainer.rope_scaling.rope_type=yarn'],
    ...['trainer.placement.colocate_all=true', 'trainer.strategy=fsdp2', 'generator.num_inference_engines=4'],
    ...[
      'trainer.epochs=20',
      'trainer.eval_interval=20',
      'trainer.train_batch_size=24',
      'trainer.ckpt_interval=10',
    ],
    ...['generator.max_input_length=8000', 'generator.sampling_params.temperature=0.9'],
    ...['generator.eval_sampling_params.stop=["</tool_call>"]', 'generator.eval_n_samples_per_prompt=3'],
    ...[
      'trainer.policy.optimizer_config.lr=1.0e-6',
      'generator.n_samples_per_prompt=4',
      'trainer.logger=wandb',
    ],
    ...['trainer.project_name=fleet-task-grpo', 'trainer.resume_mode=latest', 'trainer.dump_data_batch=true'],
  ];
  const problems = problemsOf(...line);
  const same = [
    'eval_interval',
    'train_batch_size',
    'ckpt_interval',
    'max_input_length',
    'eval_n_samples',
    'n_samples',
  ];
  expect(problems).toHaveLength(line.length - same.length);
  for (const { path, fix } of problems) expect(fix, path).not.toMatch(/^$|^keys here|^did you mean/);
});
