// The sampling settings of episodes and evaluations.
import { expect, test } from 'vitest';
import { evaluationSampling, samplingOf } from '../../src/rl/sampling.js';
import type { GeneratorSpec } from '../../src/spec/run-spec.js';

const generator = {
  ...{ temperature: 0.7, top_p: 0.9, top_k: 5, stop: ['</done>'] },
  ...{ max_turns: 4, max_input_length: 100, max_generate_length: 20, max_sequence_length: 200 },
} as GeneratorSpec;

test('training episodes are sampled as the spec says', () => {
  expect(samplingOf(generator)).toMatchObject({ temperature: 0.7, top_p: 0.9, top_k: 5, stop: ['</done>'] });
});

test('evaluations sample from the full distribution at temperature 1, with the same limits as training', () => {
  const sampling = evaluationSampling(generator);
  expect(sampling).toMatchObject({ temperature: 1, stop: ['</done>'], max_turns: 4 });
  expect(sampling).not.toHaveProperty('top_p');
  expect(sampling).not.toHaveProperty('top_k');
});
