// Which settings give two runs different base models.
import { expect, test } from 'vitest';
import { baseModelDigest } from '../../src/policy/base-model.js';
import type { ModelSpec } from '../../src/spec/run-spec.js';

const files = '1'.repeat(64);
const lora = { rank: 8, alpha: 16, targets: ['q_proj'] } as NonNullable<ModelSpec['lora']>;
const drawn = { init: 'random', initializer_range: 0.02, architecture: { vocab_size: 512 } } as ModelSpec;

interface Base {
  seed?: number;
  of?: string | null;
}
const digest = (model: Partial<ModelSpec>, { seed = 1, of = files }: Base = {}): string =>
  baseModelDigest({ seed, model: { ...drawn, ...model } }, of);

test.each([null, files])('adapters and the number format of moments change the digest (files: %s)', (of) => {
  const all = [
    {},
    { lora },
    { lora: { ...lora, rank: 4 } },
    { moments: 'int8' },
    { lora, moments: 'int8' },
  ] as const;
  expect(new Set(all.map((model) => digest(model as Partial<ModelSpec>, { of }))).size).toBe(all.length);
  expect(digest({ moments: 'fp32' }, { of })).toBe(digest({}, { of }));
});

test('with a folder’s weights, the seed matters only for adapters', () => {
  expect(digest({}, { seed: 2 })).toBe(digest({}));
  expect(digest({ lora }, { seed: 2 })).not.toBe(digest({ lora }));
  expect(digest({ lora: { ...lora, seed: 1 } }, { seed: 2 })).toBe(
    digest({ lora: { ...lora, seed: 1 } }, { seed: 3 }),
  );
});

test('with random weights, the seed matters', () => {
  expect(digest({}, { seed: 2, of: null })).not.toBe(digest({}, { of: null }));
});
