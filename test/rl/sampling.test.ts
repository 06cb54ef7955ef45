// What episodes and evaluations are drawn from.
import { expect, test } from 'vitest';
import { evaluationSampling, samplingOf } from '../../src/rl/sampling.js';
import type { GeneratorSpec } from '../../src/spec/run-spec.js';

const generator = {
  ...{ temperature: 0.7, top_p: 0.9, top_k: 5, stop: ['</done>'] },
  ...{ max_turns: 4, max_input_length: 100, max_generate_length: 20, max_sequence_length: 200 },
} as GeneratorSpec;

test('episodes that are trained on are drawn as the spec says', () => {
  expect(samplingOf(generator)).toMatchObject({ temperature: 0.7, top_p: 0.9, top_k: 5, stop: ['</done>'] });
});

test('evaluations are drawn from the whole distribution at temperature 1, and end where training’s episodes do', () => {
  const sampling = evaluationSampling(generator);
  expect(sampling).toMatchObject({ temperature: 1, stop: ['</done>'], max_turns: 4 });
  expect(sampling).not.toHaveProperty('top_p');
  expect(sampling).not.toHaveProperty('top_k');
});
