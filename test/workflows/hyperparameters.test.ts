// Values that people set while a run is under way. A value out of range, or without effect, is refused before anything is recorded.
import { describe, expect, test } from 'vitest';
import { runSpecSchema } from '../../src/spec/schema.js';
import { hyperparameterNames, problemWith } from '../../src/workflows/hyperparameters.js';

const specWith = (trainer: object, model: object = {}): unknown => ({ name: 'r', model, trainer });

describe('a value that is set while the run is under way', () => {
  test.each([
    ['lr', 0.5],
    ['eps_clip_high', 0.28],
    ['temperature', 0.9],
    ['max_turns', 3],
  ])('%s = %s is accepted even if the spec leaves it out', (name, value) => {
    for (const spec of [undefined, null, {}, specWith({})])
      expect(problemWith({ [name]: value }, spec)).toBeNull();
  });

  test('is refused, with the allowed range', () => {
    expect(problemWith({ kl_loss_coef: 11 }, specWith({ use_kl_loss: true }))).toBe(
      'kl_loss_coef must be a number from 0 to 10, not 11',
    );
    expect(problemWith({ entropy_loss_coef: -1 }, specWith({ use_entropy_loss: true }))).toMatch(
      /from 0 to 1/,
    );
    expect(problemWith({ max_turns: 1.5 }, {})).toMatch(/a whole number from 1 to 1000/);
  });

  const values = [-1, 0, 1e-9, 0.5, 1, 1.5, 2, 10, 11, 1000, 1001, 100_001, 1_000_001, 1_048_577];

  test.each(hyperparameterNames)('%s has the range of the spec’s key', (name) => {
    const part = name in runSpecSchema.shape.generator.unwrap().shape ? 'generator' : 'trainer';
    const isInSpec = (value: number): boolean =>
      !runSpecSchema
        .safeParse({ [part]: { [name]: value } })
        .error!.issues.some(({ path }) => path.join('.') === `${part}.${name}`);
    const spec = specWith(
      { use_kl_loss: true, use_entropy_loss: true },
      { architecture: { max_position_embeddings: 1_048_576 } },
    );
    const canBeSet = (value: number): boolean => problemWith({ [name]: value }, spec) === null;
    expect(values.filter(canBeSet)).toEqual(values.filter(isInSpec));
    expect(values.filter(canBeSet)).not.toEqual([]);
  });

  test.each([
    ['kl_loss_coef', 'use_kl_loss'],
    ['entropy_loss_coef', 'use_entropy_loss'],
  ])('%s is accepted if the loss has that term, and refused if it would change nothing', (name, use) => {
    expect(problemWith({ [name]: 0.5 }, specWith({ [use]: true }))).toBeNull();
    expect(problemWith({ [name]: 0 }, specWith({ [use]: true }))).toBeNull();
    for (const spec of [specWith({}), specWith({ [use]: false }), {}])
      expect(problemWith({ [name]: 0.5 }, spec)).toMatch(
        new RegExp(`${name} changes nothing.*trainer.${use}`),
      );
  });

  test('for the clip range is refused if the loss does not clip', () => {
    for (const policy_loss_type of ['regular', 'dual_clip', 'gspo'])
      expect(problemWith({ eps_clip_low: 0.1 }, specWith({ policy_loss_type }))).toBeNull();
    for (const policy_loss_type of ['cispo', 'sapo', 'reinforce'])
      expect(problemWith({ eps_clip_low: 0.1 }, specWith({ policy_loss_type }))).toMatch(
        new RegExp(`eps_clip_low changes nothing: policy_loss_type ${policy_loss_type}`),
      );
  });

  test('for tokens is at most the model’s maximum, if the spec gives it', () => {
    const architecture = { max_position_embeddings: 512 };
    expect(problemWith({ max_sequence_length: 513 }, specWith({}, { architecture }))).toMatch(
      /from 1 to 512/,
    );
    expect(problemWith({ max_sequence_length: 40_000 }, specWith({}))).toMatch(/from 1 to 32768/);
    expect(problemWith({ max_sequence_length: 131_072 }, specWith({}, { path: '/models/qwen' }))).toBeNull();
  });

  test('with an unknown name is refused, with the known names', () => {
    expect(problemWith({ kl_coef: 1 }, {})).toContain(hyperparameterNames.join(', '));
  });
});
