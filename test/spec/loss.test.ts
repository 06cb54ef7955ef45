// Which loss and advantages a plan contains for a spec's objective. Plans are compared by digest, so if one of these results changed,
// running runs would break.
import { describe, expect, test } from 'vitest';
import { InvalidSpec, type SpecProblem } from '../../src/spec/invalid-spec.js';
import { advantagesOf, lossOf, wantsReference } from '../../src/spec/loss.js';
import type { LossPlan } from '../../src/spec/records/loss-plan.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { parseRunSpec, withLaterSettings } from '../../src/spec/spec-input.js';

function specWith(trainer: Record<string, unknown>, model: Record<string, unknown> = {}): unknown {
  const architecture = {
    ...{ vocab_size: 64, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 },
    ...{ num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16 },
  };
  return {
    name: 'trial',
    model: {
      ...{ name: 'm', tokenizer: '/models/tokenizer.json', chat_template: '/models/chat_template.jinja' },
      ...('path' in model ? {} : { architecture }),
      ...model,
    },
    data: { tasks: '/data/tasks.jsonl' },
    environments: [{ env_key: 'tracker' }],
    generator: { max_input_length: 700, max_generate_length: 300 },
    trainer: { max_training_steps: 10, ...trainer },
  };
}

const parsed = (...given: Parameters<typeof specWith>): RunSpec => parseRunSpec(specWith(...given));
function lossWith(trainer: Record<string, unknown>): LossPlan {
  const spec = parsed(trainer);
  return lossOf(spec.trainer, spec.generator);
}
function problemsWith(...given: Parameters<typeof specWith>): readonly SpecProblem[] {
  try {
    parsed(...given);
  } catch (error) {
    if (error instanceof InvalidSpec) return error.problems;
    throw error;
  }
  return [];
}

describe('the loss of a GRPO step', () => {
  const clip = { eps_clip_low: 0.2, eps_clip_high: 0.2 };

  test('is by default the clipped loss over all tokens, without other terms', () => {
    expect(lossWith({})).toEqual({ kind: 'regular', reduction: 'token_mean', ...clip });
  });

  test.each<[string, Record<string, unknown>, LossPlan]>([
    [
      'DAPO',
      { eps_clip_high: 0.28 },
      { kind: 'regular', reduction: 'token_mean', eps_clip_low: 0.2, eps_clip_high: 0.28 },
    ],
    [
      'Dr. GRPO',
      { loss_reduction: 'seq_mean_token_sum_norm' },
      { kind: 'regular', reduction: 'seq_mean_token_sum_norm', max_seq_len: 1000, ...clip },
    ],
    [
      'Dr. GRPO of a given length',
      { loss_reduction: 'seq_mean_token_sum_norm', max_seq_len: 512 },
      { kind: 'regular', reduction: 'seq_mean_token_sum_norm', max_seq_len: 512, ...clip },
    ],
    [
      'dual clip',
      { policy_loss_type: 'dual_clip', clip_ratio_c: 4 },
      { kind: 'dual_clip', reduction: 'token_mean', ...clip, clip_ratio_c: 4 },
    ],
    [
      'GSPO',
      { policy_loss_type: 'gspo', loss_reduction: 'sequence_mean', eps_clip_low: 3e-4, eps_clip_high: 4e-4 },
      { kind: 'gspo', reduction: 'sequence_mean', eps_clip_low: 3e-4, eps_clip_high: 4e-4 },
    ],
    [
      'CISPO',
      { policy_loss_type: 'cispo', cispo: { cispo_eps_clip_high: 4 } },
      { kind: 'cispo', reduction: 'token_mean', cispo_eps_clip_low: 1, cispo_eps_clip_high: 4 },
    ],
    [
      'SAPO',
      { policy_loss_type: 'sapo' },
      { kind: 'sapo', reduction: 'token_mean', sapo_tau_pos: 1, sapo_tau_neg: 1.05 },
    ],
    ['REINFORCE', { policy_loss_type: 'reinforce' }, { kind: 'reinforce', reduction: 'token_mean' }],
    [
      'a KL term, an entropy bonus and truncated importance sampling',
      { use_kl_loss: true, use_entropy_loss: true, use_tis: true },
      {
        ...{ kind: 'regular', reduction: 'token_mean', ...clip },
        ...{ kl_weight: 0.001, kl_estimator: 'k3', entropy_weight: 0.01, tis_cap: 2 },
      },
    ],
    [
      'terms whose weight is 0',
      { use_kl_loss: true, kl_loss_coef: 0, use_entropy_loss: true, entropy_loss_coef: 0 },
      { kind: 'regular', reduction: 'token_mean', ...clip },
    ],
    [
      'weights of terms that are not used',
      { kl_loss_coef: 1, kl_estimator_type: 'k1', entropy_loss_coef: 1, tis_imp_ratio_cap: 5 },
      { kind: 'regular', reduction: 'token_mean', ...clip },
    ],
  ])('contains all settings of %s, and no setting without effect', (_, trainer, loss) => {
    expect(lossWith(trainer)).toEqual(loss);
    expect(wantsReference(lossWith(trainer))).toBe('kl_weight' in loss);
  });
});

describe('the advantages of a GRPO step', () => {
  test.each([
    [{}, { estimator: 'grpo', norm_by_std: true, deviation: 'population', eps: 1e-6 }],
    [
      { advantage_deviation: 'sample', advantage_eps: 1e-4 },
      { estimator: 'grpo', norm_by_std: true, deviation: 'sample', eps: 1e-4 },
    ],
    [{ grpo_norm_by_std: false }, { estimator: 'grpo', norm_by_std: false }],
    [{ advantage_estimator: 'rloo' }, { estimator: 'rloo' }],
    [{ advantage_estimator: 'reinforce++' }, { estimator: 'reinforce++' }],
    [{ advantage_estimator: 'maxrl' }, { estimator: 'maxrl', eps: 1e-6 }],
  ])('of %j are %j', (trainer, advantages) => {
    expect(advantagesOf(parsed(trainer).trainer)).toEqual(advantages);
  });
});

describe('a SkyRL setting that Longhaul lacks', () => {
  test.each([
    ['advantage_estimator', 'gae', /"grpo" or "rloo" or "reinforce\+\+" or "maxrl", not "gae"/, /critic/],
    ['policy_loss_type', 'clip_cov', /"regular" or "dual_clip" or .*, not "clip_cov"/, /eps_clip_high/],
    ['policy_loss_type', 'kl_cov', /not "kl_cov"/, /use_kl_loss/],
    ['policy_loss_type', 'cross_entropy', /not "cross_entropy"/, /warm_start/],
    ['loss_reduction', 'prompt_mean', /"token_mean" or "sequence_mean" or .*, not "prompt_mean"/, /sequence/],
    ['kl_estimator_type', 'abs', /"k1" or "k2" or "k3", not "abs"/, /k2 or k3/],
  ])('%s: %s gives an error that lists the valid values', (key, value, problem, fix) => {
    expect(problemsWith({ [key]: value })).toEqual([
      {
        path: `trainer.${key}`,
        problem: expect.stringMatching(problem) as string,
        fix: expect.stringMatching(fix) as string,
      },
    ]);
  });

  test.each([
    ['use_kl_in_reward', true, /use_kl_loss, kl_loss_coef/],
    ['gamma', 1, /no critic/],
    ['zero_variance_filter', true, /never carry a loss/],
  ])('the key %s gives an error that names the replacement', (key, value, fix) => {
    expect(problemsWith({ [key]: value })).toEqual([
      {
        path: `trainer.${key}`,
        problem: `there is no key "${key}"`,
        fix: expect.stringMatching(fix) as string,
      },
    ]);
  });

  test('a mistyped value gives an error that suggests the nearest valid value', () => {
    expect(problemsWith({ policy_loss_type: 'gpso' })[0]?.fix).toBe('did you mean "gspo"?');
  });
});

describe('a spec that an earlier version stored', () => {
  test('keeps its meaning: newer settings get their defaults, and file paths do not change', () => {
    const now = parsed({ eps_clip_high: 0.28, advantage_eps: 1e-4 });
    const { moments: _moments, ...model } = now.model;
    const known = ['max_training_steps', 'lr', 'eps_clip_low', 'eps_clip_high', 'advantage_eps'];
    const trainer = Object.fromEntries(Object.entries(now.trainer).filter(([key]) => known.includes(key)));
    const stored = { ...now, model, trainer } as unknown as RunSpec;
    expect(withLaterSettings(stored)).toEqual(now);
  });

  test('is returned unchanged if this version would refuse it', () => {
    const stored = { ...parsed({}), surprise: 1 } as unknown as RunSpec;
    expect(withLaterSettings(stored)).toBe(stored);
  });
});

describe('a model folder', () => {
  const path = '/models/qwen';

  test('supplies tokenizer and chat template, unless the spec names others', () => {
    const spec = specWith({}, { path }) as { model: Record<string, unknown> };
    spec.model = { name: 'm', path };
    expect(parseRunSpec(spec).model).toEqual({
      ...{ name: 'm', init: 'random', initializer_range: 0.02, moments: 'fp32', path },
      ...{ tokenizer: `${path}/tokenizer.json`, chat_template: `${path}/chat_template.jinja` },
    });
    spec.model = { name: 'm', path, chat_template: '/own.jinja' };
    expect(parseRunSpec(spec).model.chat_template).toBe('/own.jinja');
  });

  test('sets its own limit for the sequence length', () => {
    const spec = specWith({}, { path }) as Record<string, unknown>;
    spec['generator'] = { max_sequence_length: 100_000 };
    expect(parseRunSpec(spec).generator.max_sequence_length).toBe(100_000);
  });

  test('gives a spec that does not change when it is parsed again', () => {
    const spec = specWith({}, { path, lora: { rank: 8, alpha: 16 }, moments: 'int8' });
    const once = parseRunSpec(spec);
    expect(parseRunSpec(JSON.parse(JSON.stringify(once)))).toEqual(once);
    expect(once.model.lora?.targets).toHaveLength(7);
  });

  test('has its adapter targets in a fixed order, in whatever order the spec lists them', () => {
    const lora = { rank: 8, alpha: 16, targets: ['down_proj', 'q_proj', 'q_proj'] };
    expect(parsed({}, { path, lora }).model.lora).toEqual({ ...lora, targets: ['q_proj', 'down_proj'] });
    expect(problemsWith({}, { path, lora: { ...lora, targets: ['qproj'] } })).toMatchObject([
      { path: 'model.lora.targets[0]', fix: 'did you mean "q_proj"?' },
    ]);
    expect(problemsWith({}, { path, lora: { ...lora, targets: [] } })).toMatchObject([
      { path: 'model.lora.targets' },
    ]);
  });
});
