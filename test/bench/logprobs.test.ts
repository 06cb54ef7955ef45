import { expect, it } from 'vitest';
import { measureLogprobs } from '../../bench/logprobs.js';
import { quickstartModel } from '../../bench/quickstart-model.js';

it(
  'log-probs are the same bits over batch sizes, threads, cache sizes and instruction sets',
  { timeout: 240_000 },
  async () => {
    const { architecture, ...model } = await quickstartModel();
    const small = { ...architecture, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 };
    const figures = await measureLogprobs({
      model: { ...model, architecture: small },
      ...{ requests: 8, newTokens: 12 },
    });
    if (figures.skipped.length > 0) console.log(`skipped on this machine: ${figures.skipped.join(', ')}`);
    expect(figures).toMatchObject({ difference_max: 0, differing_states: 0 });
    expect(figures.variants).toBeGreaterThan(0);
    expect(figures.compared).toBe(figures.variants * 8 * 12 * 3);
  },
);
