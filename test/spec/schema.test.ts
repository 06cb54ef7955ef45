import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { InvalidSpec, type SpecProblem } from '../../src/spec/invalid-spec.js';
import { parseRunSpec, readSpecFile } from '../../src/spec/spec-input.js';

interface LooseSpec {
  [key: string]: unknown;
  model: Record<string, unknown> & { architecture: Record<string, unknown> };
  data: Record<string, unknown>;
  environments: Record<string, unknown>[];
  trainer: Record<string, unknown>;
}

/** A spec with only the required keys. */
function smallest(): LooseSpec {
  return {
    name: 'trial',
    model: {
      name: 'm',
      architecture: {
        vocab_size: 64,
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: 1,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 32,
      },
      tokenizer: '/models/tokenizer.json',
      chat_template: '/models/chat_template.jinja',
    },
    data: { tasks: '/data/tasks.jsonl' },
    environments: [{ env_key: 'tracker' }],
    trainer: { max_training_steps: 10 },
  };
}

function problemsOf(change: (spec: LooseSpec) => void): readonly SpecProblem[] {
  const spec = smallest();
  change(spec);
  try {
    parseRunSpec(spec);
  } catch (error) {
    if (error instanceof InvalidSpec) return error.problems;
    throw error;
  }
  return [];
}

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function specFile(name: string, text: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-spec-'));
  folders.push(folder);
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

describe('a valid spec', () => {
  test('gets every default', () => {
    const spec = parseRunSpec(smallest());
    expect(spec.generator.temperature).toBe(1);
    expect(spec.trainer.eps_clip_low).toBe(0.2);
    expect(spec.model.architecture?.rope_theta).toBe(1_000_000);
    expect(spec.warm_start).toEqual([]);
  });

  test('does not change when it is parsed again, so the output of `longhaul spec` is accepted', () => {
    const once = parseRunSpec(smallest());
    expect(parseRunSpec(JSON.parse(JSON.stringify(once)))).toEqual(once);
  });

  test.each(['presets/quickstart.yaml', 'presets/suite.yaml', 'presets/tiny.yaml'])(
    'is in %s; its paths become absolute',
    async (file) => {
      const spec = await readSpecFile(file);
      expect(spec.model.tokenizer).toBe(resolve('presets/tokenizers/small/tokenizer.json'));
      expect(isAbsolute(spec.model.chat_template)).toBe(true);
      expect(parseRunSpec(JSON.parse(JSON.stringify(spec)))).toEqual(spec);
    },
  );

  test('may be YAML or JSON', async () => {
    const json = specFile('run.json', JSON.stringify(smallest()));
    expect((await readSpecFile(json)).name).toBe('trial');
  });
});

describe('a prepared dataset', () => {
  const withData = (data: object) =>
    problemsOf((spec) => {
      spec['data'] = { source: 'crm@v1', ...data };
    }).map(({ path }) => path);

  test('brings the demonstrations of a warm start', () => {
    expect(withData({})).toEqual([]);
  });

  test('takes no keys of files', () => {
    expect(withData({ demonstrations: '/data/d.jsonl', max_tasks: 5 })).toEqual([
      ...['data.demonstrations', 'data.max_tasks'],
    ]);
    expect(withData({ tasks: '/data/t.jsonl' })).toContain('data');
    expect(withData({ source: '/data/t.jsonl' })).toContain('data.source');
  });
});

describe('a mistyped key', () => {
  test.each([
    ['trainer', 'weight_deca', 'trainer.weight_decay'],
    ['trainer', 'trainBatchSize', 'trainer.train_batch_size'],
    ['trainer', 'ckpt_intervall', 'trainer.ckpt_interval'],
    ['data', 'tsaks', 'data.tasks'],
  ])('%s.%s gives an error that suggests the nearest valid key', (section, key, nearest) => {
    const [problem] = problemsOf((spec) => Object.assign(spec[section] as object, { [key]: 1 }));
    expect(problem?.path).toBe(`${section}.${key}`);
    expect(problem?.fix).toBe(`did you mean ${nearest}?`);
  });

  test('that resembles no valid key gives an error that lists the valid keys', () => {
    const [problem] = problemsOf((spec) => (spec.data['xyzzy'] = 1));
    expect(problem?.fix).toMatch(/^keys here: source, tasks, demonstrations, modality/);
  });

  test('that belongs to another section gives an error that names that section', () => {
    const [problem] = problemsOf((spec) => (spec.trainer['n_samples_per_prompt'] = 4));
    expect(problem?.fix).toBe('it belongs at generator.n_samples_per_prompt');
  });

  test('in a list gives an error that names the list entry', () => {
    const [problem] = problemsOf((spec) => Object.assign(spec.environments[0] ?? {}, { ulr: 'http://a:1' }));
    expect(problem).toMatchObject({ path: 'environments[0].ulr', fix: 'did you mean environments[0].url?' });
  });
});

describe('a wrong value', () => {
  test.each<[string, (spec: LooseSpec) => void, RegExp]>([
    ['trainer.lr', (spec) => (spec.trainer['lr'] = 'fast'), /must be a number, not "fast"/],
    ['trainer.lr', (spec) => (spec.trainer['lr'] = 0), /must be more than 0, not 0/],
    [
      'trainer.ckpt_interval',
      (spec) => (spec.trainer['ckpt_interval'] = 1.5),
      /must be a whole number, not 1.5/,
    ],
    ['trainer.max_training_steps', (spec) => delete spec.trainer['max_training_steps'], /is missing/],
    [
      'model.architecture.head_dim',
      (spec) => (spec.model.architecture['head_dim'] = 40),
      /a multiple of 16, not 40/,
    ],
    [
      'model.architecture.hidden_size',
      (spec) => (spec.model.architecture['hidden_size'] = 24),
      /a multiple of 16/,
    ],
    ['model.lora.rank', (spec) => (spec.model['lora'] = { rank: 0, alpha: 8 }), /at least 1, not 0/],
    ['trainer.clip_ratio_c', (spec) => (spec.trainer['clip_ratio_c'] = 1), /more than 1, not 1/],
    ['trainer.kl_loss_coef', (spec) => (spec.trainer['kl_loss_coef'] = -1), /at least 0, not -1/],
    ['trainer.tis_imp_ratio_cap', (spec) => (spec.trainer['tis_imp_ratio_cap'] = -1), /more than 0/],
    ['name', (spec) => (spec['name'] = '../x'), /1 to 64 letters/],
    ['environments[0].kind', (spec) => (spec.environments = [{ env_key: 'a', kind: 'gym' }]), /openenv/],
    [
      'environments[0].url',
      (spec) => (spec.environments = [{ env_key: 'a', url: 'ftp://x' }]),
      /URL like http/,
    ],
    ['environments', (spec) => (spec.environments = []), /at least 1 entries/],
    [
      'environments[0].no_call',
      (spec) => (spec.environments = [{ env_key: 'a', url: 'http://x:1', no_call: 1 }]),
      /unknown/,
    ],
    ['retention.keep_last', (spec) => (spec['retention'] = { keep_last: 0 }), /at least 1, not 0/],
    ['budget.max_tokens', (spec) => (spec['budget'] = { max_tokens: 0 }), /at least 1, not 0/],
    ['budget.max_wall_s', (spec) => (spec['budget'] = { max_wall_s: 0 }), /more than 0, not 0/],
    ['budget.max_gpu_hours', (spec) => (spec['budget'] = { max_gpu_hours: 0 }), /more than 0, not 0/],
    [
      'budget.max_usd',
      (spec) => (spec['budget'] = { max_usd: 0, usd_per_gpu_hour: 2 }),
      /more than 0, not 0/,
    ],
    ['budget.max_usd', (spec) => (spec['budget'] = { max_usd: 9 }), /usd_per_gpu_hour is not given/],
    ['placement.nodes', (spec) => (spec['placement'] = { nodes: 0 }), /at least 1, not 0/],
    ['placement.nodes', (spec) => (spec['placement'] = { nodes: 65 }), /at most 64, not 65/],
    ['placement.priority', (spec) => (spec['placement'] = { priority: -101 }), /at least -100, not -101/],
    ['placement.priority', (spec) => (spec['placement'] = { priority: 0.5 }), /whole number/],
    [
      'tracking.tensorboard',
      (spec) => (spec['tracking'] = { tensorboard: 'yes' }),
      /true or false, not "yes"/,
    ],
    [
      'tracking.wandb',
      (spec) => (spec['tracking'] = { wandb: true }),
      /a mapping of keys to values, not true/,
    ],
    [
      'tracking.wandb.mode',
      (spec) => (spec['tracking'] = { wandb: { mode: 'of' } }),
      /"online" or "offline"/,
    ],
    [
      'tracking.wandb.entity',
      (spec) => (spec['tracking'] = { wandb: { entity: 'a/b' } }),
      /a name of 1 to 64/,
    ],
    ['slack.channel', (spec) => (spec['slack'] = {}), /is missing/],
    ['slack.channel', (spec) => (spec['slack'] = { channel: '#two words' }), /the name or id of a channel/],
    ['slack.events[0]', (spec) => (spec['slack'] = { channel: 'a', events: ['alert'] }), /"alerts" or/],
  ])('of %s is refused with a reason', (path, change, problem) => {
    expect(problemsOf(change)).toEqual([
      expect.objectContaining({ path, problem: expect.stringMatching(problem) as string }),
    ]);
  });

  test('that may be a token or a key is not repeated in the error', () => {
    const token = ['xoxb', '1111', 'abcdefSecret'].join('-');
    const key = '0123456789'.repeat(4);
    const problems = problemsOf((spec) =>
      Object.assign(spec, { slack: { channel: token }, tracking: { wandb: { project: key } } }),
    );
    expect(problems.map(({ path }) => path)).toEqual(['tracking.wandb.project', 'slack.channel']);
    expect(JSON.stringify(problems)).not.toMatch(/abcdefSecret|(0123456789){4}/);
  });

  test('of a setting with few choices gives an error that suggests the nearest choice', () => {
    const [problem] = problemsOf((spec) => (spec['generator'] = { tools_format: 'jsn' }));
    expect(problem).toMatchObject({ path: 'generator.tools_format', fix: 'did you mean "json"?' });
  });
});

describe('an impossible combination', () => {
  test.each<[string, (spec: LooseSpec) => void]>([
    [
      'model.architecture.num_key_value_heads',
      (spec) => (spec.model.architecture['num_key_value_heads'] = 3),
    ],
    ['data', (spec) => (spec.data = {})],
    ['data', (spec) => (spec.data = { tasks: '/t', source: 'a@1', eval_tasks: 1, final_eval_tasks: 1 })],
    [
      'data.final_eval_tasks',
      (spec) => (
        (spec.data = { tasks: '/t', final_eval_tasks: 313 }),
        (spec['generator'] = { eval_n_samples_per_prompt: 64 })
      ),
    ],
    ['environments[1].env_key', (spec) => spec.environments.push({ env_key: 'tracker' })],
    [
      'environments[0].sessions',
      (spec) => (spec.environments = [{ env_key: 'tracker', sessions: 'attached' }]),
    ],
    ['environments[0].no_call', (spec) => (spec.environments = [{ env_key: 'tracker', no_call: 0 }])],
    [
      'environments[0].no_call',
      (spec) => (spec.environments = [{ env_key: 'tracker', kind: 'fleet', no_call: 'unknown' }]),
    ],
    [
      'environments[0].sessions',
      (spec) =>
        (spec.environments = [
          { env_key: 'tracker', url: 'http://x:1', sessions: 'attached', transport: 'http' },
        ]),
    ],
    ['generator.max_generate_length', (spec) => (spec['generator'] = { max_generate_length: 20_000 })],
    ['generator.max_sequence_length', (spec) => (spec['generator'] = { max_sequence_length: 40_000 })],
    ['generator.top_p', (spec) => (spec['generator'] = { top_p: 0.9 })],
    ['generator.top_k', (spec) => (spec['generator'] = { top_k: 20, truncated_sampling: false })],
    [
      'warm_start[0].demonstrations',
      (spec) => (spec['warm_start'] = [{ name: 'a', demonstrations: 'drill', updates: 5 }]),
    ],
    ['trainer.warmup_steps', (spec) => (spec.trainer['warmup_steps'] = 11)],
    ['trainer.max_seq_len', (spec) => (spec.trainer['max_seq_len'] = 512)],
    [
      'trainer.dynamic_sampling.min_replace_ratio',
      (spec) => (spec.trainer['dynamic_sampling'] = { type: 'filter', min_replace_ratio: 0.2 }),
    ],
    [
      'trainer.curriculum_floor',
      (spec) => Object.assign(spec.trainer, { curriculum_floor: 0.1, curriculum: { floor: 0.1 } }),
    ],
    [
      'trainer.curriculum.weights.booking',
      (spec) => (spec.trainer['curriculum'] = { weights: { booking: 2, tracker: 1 } }),
    ],
    [
      'trainer.curriculum.by',
      (spec) => Object.assign(spec.trainer, { balance: 'env', curriculum: { by: 'env' } }),
    ],
    [
      'trainer.curriculum.weights',
      (spec) => Object.assign(spec.trainer, { balance: 'env', curriculum: { weights: { tracker: 2 } } }),
    ],
    [
      'trainer.curriculum.max_share',
      (spec) => Object.assign(spec.trainer, { balance: 'env', curriculum: { max_share: 0.5 } }),
    ],
    [
      'trainer.curriculum.max_share',
      (spec) => (
        (spec.environments = ['a', 'b', 'c'].map((env_key) => ({ env_key, url: 'http://x:1' }))),
        (spec.trainer['curriculum'] = { by: 'env', max_share: 0.1 })
      ),
    ],
    [
      'trainer.use_kl_loss',
      (spec) => (
        (spec.data = { tasks: '/t', demonstrations: '/d', eval_tasks: 1, final_eval_tasks: 1 }),
        (spec['warm_start'] = [{ name: 'a', demonstrations: 'drill', updates: 5 }]),
        (spec.model['lora'] = { rank: 2, alpha: 4 }),
        (spec.trainer['use_kl_loss'] = true)
      ),
    ],
    ['model', (spec) => (spec.model['path'] = '/models/qwen')],
    ['model.rope_scaling', (spec) => (spec.model['rope_scaling'] = { factor: 2 })],
    ['model', (spec) => delete (spec.model as Record<string, unknown>)['architecture']],
    ['model.chat_template', (spec) => delete spec.model['chat_template']],
    ['model.tokenizer', (spec) => (spec.model['tokenizer'] = 'tokenizer.json')],
  ])('at %s is refused', (path, change) => {
    expect(problemsOf(change).map((problem) => problem.path)).toEqual([path]);
  });

  test('is refused if two phases have the same name, or one has the name of GRPO', () => {
    const phase = (name: string) => ({ name, demonstrations: 'teacher', updates: 5 });
    const data = { tasks: '/t', demonstrations: '/d' };
    expect(
      problemsOf((spec) => Object.assign(spec, { data, warm_start: [phase('a'), phase('a')] })),
    ).toHaveLength(1);
    expect(problemsOf((spec) => Object.assign(spec, { data, warm_start: [phase('grpo')] }))).toHaveLength(1);
  });
});

describe('all problems of a spec', () => {
  test('are reported together, each with its path', () => {
    const problems = problemsOf((spec) => {
      spec.trainer['lr'] = -1;
      spec.trainer['ckpt_intervall'] = 3;
      spec.model['init'] = 'pretrained';
    });
    expect(problems.map(({ path }) => path).sort()).toEqual([
      'model.init',
      'trainer.ckpt_intervall',
      'trainer.lr',
    ]);
  });

  test('name the spec’s file', async () => {
    const path = specFile('bad.yaml', 'name: x\nname: y\n');
    await expect(readSpecFile(path)).rejects.toThrow(new RegExp(`${path} has one problem:\\n.*unique`));
    await expect(readSpecFile('/nowhere/run.yaml')).rejects.toThrow(/there is no such file/);
    await expect(readSpecFile('presets')).rejects.toThrow(/it is a folder; name a YAML or JSON file/);
    await expect(readSpecFile(specFile('list.yaml', '- 1\n'))).rejects.toThrow(/must be a mapping/);
  });

  test.each(['http://127.0.0.1:8041/tracker', 'openenv://127.0.0.1:8041/tracker'])(
    'include the address %s for tasks, with the way to write a server',
    (tasks) => {
      const input = { ...smallest(), data: { ...smallest().data, tasks } };
      expect(() => parseRunSpec(input, { file: '/specs/run.yaml' })).toThrow(
        `data.tasks: "${tasks}" is no file; for a server’s tasks write openenv+http://127.0.0.1:8041/tracker`,
      );
    },
  );

  test('include relative paths that lead to no file from the spec file’s folder', async () => {
    const copied = smallest();
    copied.model = { ...copied.model, tokenizer: 'tokenizers/small/tokenizer.json' };
    const path = specFile('copy.json', JSON.stringify(copied));
    const lost = resolve(path, '../tokenizers/small/tokenizer.json');
    await expect(readSpecFile(path)).rejects.toThrow(
      new RegExp(`model.tokenizer: there is no file ${lost}.*start at the folder of the spec file`),
    );
  });

  test.each([
    ['Qwen/Qwen3-0.6B', 'if Qwen/Qwen3-0.6B is on the Hugging Face Hub'],
    ['hf://Qwen/Qwen3-0.6B', 'it is on the Hugging Face Hub'],
    ['https://huggingface.co/Qwen/Qwen3-0.6B/', 'it is on the Hugging Face Hub'],
  ])('say how to download the model %s of the Hub', async (hub, begin) => {
    const path = specFile('hub.json', JSON.stringify({ ...smallest(), model: { name: 'q', path: hub } }));
    const target = resolve(path, '../models/Qwen3-0.6B');
    await expect(readSpecFile(path)).rejects.toThrow(
      `${begin}: \`hf download Qwen/Qwen3-0.6B --local-dir ${target}\`, and write model.path: models/Qwen3-0.6B; relative`,
    );
  });

  test('say how to get a tokenizer or tasks of the Hub, and nothing of it for a file', async () => {
    const model = { ...smallest().model, tokenizer: 'Qwen/Qwen3-0.6B' };
    const tokenizer = specFile('hub.json', JSON.stringify({ ...smallest(), model }));
    await expect(readSpecFile(tokenizer)).rejects.toThrow(
      /`hf download Qwen\/Qwen3-0\.6B tokenizer\.json --local-dir .*`, and write model\.tokenizer: models\/Qwen3-0\.6B\/tokenizer\.json/,
    );
    const withTasks = (tasks: string): Promise<string> =>
      readSpecFile(specFile('hub.json', JSON.stringify({ ...smallest(), data: { tasks } }))).then(
        () => '',
        String,
      );
    expect(await withTasks('openai/gsm8k')).toContain("datasets.load_dataset('openai/gsm8k', …).to_json(");
    expect(await withTasks('rows/tasks.jsonl')).toMatch(
      /there is no file .*rows\/tasks\.jsonl; relative paths/,
    );
  });

  test('say once that a key of another trainer has no counterpart', () => {
    const [problem] = problemsOf(({ trainer }) => (trainer['repetition_penalty'] = 1.1));
    expect(problem).toMatchObject({
      problem: 'there is no key "repetition_penalty"',
      fix: 'nothing here has its effect: remove it',
    });
  });

  test('show the mapping for a model, tasks or an environment that is written as text', () => {
    const text = { model: 'Qwen/Qwen3-0.6B', data: 'tasks.jsonl', environments: ['tracker'] };
    expect(problemsOf((spec) => Object.assign(spec, text)).map(({ fix }) => fix)).toEqual([
      'write model: {name: …, path: FOLDER}',
      'write data: {tasks: tasks.jsonl}',
      'write env_key: tracker',
    ]);
  });
});
