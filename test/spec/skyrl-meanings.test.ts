// Keys that have SkyRL's names but another meaning: each is explained only if the spec sets it.
import { expect, test } from 'vitest';
import { skyrlMeanings } from '../../src/spec/names/skyrl-meanings.js';
import { runSpecSchema } from '../../src/spec/schema.js';
import { allKeyPaths } from '../../src/spec/spec-issues.js';

const everything = {
  generator: { max_generate_length: 512 },
  trainer: {
    train_batch_size: 32,
    grpo_norm_by_std: true,
    loss_reduction: 'token_mean',
    dynamic_sampling: { max_sample_batches: 3 },
  },
};

test('each key that a spec sets is explained, with keys that exist', () => {
  const notes = skyrlMeanings(everything);
  expect(notes.map((note) => note.split(' ')[0])).toEqual([
    'generator.max_generate_length',
    'trainer.train_batch_size',
    'trainer.grpo_norm_by_std',
    'trainer.loss_reduction',
    'trainer.dynamic_sampling.max_sample_batches',
  ]);
  const known = allKeyPaths(runSpecSchema);
  for (const path of notes.join(' ').match(/\b(?:trainer|generator)\.[a-z_.]*[a-z_]/g) ?? [])
    expect(known, path).toContain(path);
});

test('a weight of a loss term that is off is named, because it has no effect', () => {
  expect(skyrlMeanings({ trainer: { kl_loss_coef: 0.1, entropy_loss_coef: 0.01 } })).toEqual([
    'trainer.kl_loss_coef has no effect without trainer.use_kl_loss: true',
    'trainer.entropy_loss_coef has no effect without trainer.use_entropy_loss: true',
  ]);
  expect(skyrlMeanings({ trainer: { kl_loss_coef: 0.1, use_kl_loss: false } })).toEqual([]);
});

test('a key is not explained if the spec does not set it, or if its value means the same', () => {
  expect(skyrlMeanings({})).toEqual([]);
  expect(skyrlMeanings(null)).toEqual([]);
  const trainer = { loss_reduction: 'sequence_mean', grpo_norm_by_std: true, advantage_deviation: 'sample' };
  expect(skyrlMeanings({ trainer })).toEqual([]);
});
