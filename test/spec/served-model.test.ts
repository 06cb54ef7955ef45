// A spec for a Tinker server is refused if it contains a setting that the server does not support; the error names the setting's path.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { InvalidSpec } from '../../src/spec/invalid-spec.js';
import { parseRunSpec, readSpecFile } from '../../src/spec/spec-input.js';

const spec = {
  name: 'served',
  project: 'tests',
  seed: 1,
  model: {
    name: 'm',
    served: { name: 'Qwen/Qwen3-0.6B', rank: 8 },
    ...{ tokenizer: '/t/tokenizer.json', chat_template: '/t/chat_template.jinja' },
  },
  data: { tasks: '/t/tasks.jsonl', eval_tasks: 1, final_eval_tasks: 1 },
  environments: [{ env_key: 'tracker', url: 'http://127.0.0.1:9' }],
  generator: { max_sequence_length: 512, max_input_length: 448, max_generate_length: 64 },
  trainer: { max_training_steps: 3 },
};

function pathsRefused(change: (copy: Record<string, Record<string, unknown>>) => void): string[] {
  const copy = structuredClone(spec) as unknown as Record<string, Record<string, unknown>>;
  change(copy);
  try {
    parseRunSpec(copy);
  } catch (error) {
    if (error instanceof InvalidSpec) return error.problems.map(({ path }) => path);
    throw error;
  }
  return [];
}

const prices = { train: 0.7, prefill: 0.2, sample: 0.6 };

describe('a served model', () => {
  it('of presets/tinker.yaml is on another port than the environments', () => {
    const text = readFileSync('presets/tinker.yaml', 'utf8');
    const [, tinker] = /LONGHAUL_TINKER=\S+:(\d+)/.exec(text) ?? [];
    expect(tinker).toMatch(/^\d+$/);
    expect([...text.matchAll(/^ +(?:- )?(?:tasks|url): \S*:(\d+)/gm)].map(([, port]) => port)).not.toContain(
      tinker,
    );
  });

  it.each(['presets/tinker.yaml', 'presets/tinker-qwen3-8b.yaml'])(
    'is what %s trains, which lacks only the two files that a user brings',
    async (preset) => {
      const refused: unknown = await readSpecFile(preset).catch((error: unknown) => error);
      expect((refused as InvalidSpec).problems.map(({ path }) => path)).toEqual([
        'model.tokenizer',
        'model.chat_template',
      ]);
    },
  );

  it('replaces model.path and model.architecture', () => {
    expect(parseRunSpec(spec).model.served).toEqual({
      ...{ name: 'Qwen/Qwen3-0.6B', rank: 8, reduction: 'sum', clips: false },
      ...{ numbered: true, chunk_sequences: 128, chunk_tokens: 65_536, logprob_tolerance: 0.1 },
    });
  });

  it.each<[string, (copy: Record<string, Record<string, unknown>>) => void]>([
    ['model.path', ({ model }) => (model!['path'] = '/m')],
    ['model.lora', ({ model }) => (model!['lora'] = { rank: 4, alpha: 8 })],
    ['model.moments', ({ model }) => (model!['moments'] = 'int8')],
    ['trainer.policy_loss_type', ({ trainer }) => (trainer!['policy_loss_type'] = 'sapo')],
    ['trainer.use_kl_loss', ({ trainer }) => (trainer!['use_kl_loss'] = true)],
    ['trainer.use_entropy_loss', ({ trainer }) => (trainer!['use_entropy_loss'] = true)],
    ['trainer.max_grad_norm', ({ trainer }) => (trainer!['max_grad_norm'] = 0.5)],
    ['generator.temperature', ({ generator }) => (generator!['temperature'] = 0.7)],
    ['generator.stop', ({ generator }) => (generator!['stop'] = ['END'])],
    ['placement.nodes', (copy) => (copy['placement'] = { nodes: 2 })],
    [
      'model.served.chunk_tokens',
      ({ model }) => (model!['served'] = { ...spec.model.served, chunk_tokens: 100 }),
    ],
  ])('refuses %s', (path, change) => {
    expect(pathsRefused(change)).toContain(path);
  });

  it('takes max_grad_norm where the server clips', () => {
    expect(
      pathsRefused(({ trainer, model }) => {
        trainer!['max_grad_norm'] = 0.5;
        model!['served'] = { ...spec.model.served, clips: true };
      }),
    ).toEqual([]);
  });

  it.each<[string, Record<string, unknown>, string[]]>([
    ['prices of tokens', { max_usd: 9, usd_per_million: prices }, []],
    ['a price of hours', { max_usd: 9, usd_per_gpu_hour: 2 }, []],
    ['no price', { max_usd: 9 }, ['budget.max_usd']],
    ['a price below 0', { usd_per_million: { ...prices, train: -1 } }, ['budget.usd_per_million.train']],
    ['two prices', { usd_per_million: { train: 1, sample: 1 } }, ['budget.usd_per_million.prefill']],
  ])('has a budget with %s', (_, budget, refused) => {
    expect(pathsRefused((copy) => (copy['budget'] = budget))).toEqual(refused);
  });

  it('alone has prices of tokens', () => {
    const refused = pathsRefused((copy) => {
      delete copy['model']!['served'];
      copy['model']!['path'] = '/m';
      copy['budget'] = { max_usd: 9, usd_per_million: prices };
    });
    expect(refused).toContain('budget.usd_per_million');
  });

  it('is required for trainer.save_every', () => {
    expect(pathsRefused(({ trainer }) => (trainer!['save_every'] = 2))).toEqual([]);
    expect(
      pathsRefused(({ trainer, model }) => {
        trainer!['save_every'] = 2;
        delete model!['served'];
        model!['path'] = '/m';
      }),
    ).toContain('trainer.save_every');
  });
});
