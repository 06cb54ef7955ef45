// The settings that `longhaul set` takes, and what it says about other names.
import { expect, test } from 'vitest';
import { hyperparameters } from '../../../src/cli/control/control-commands.js';

test('settings are numbers by name', () => {
  expect(hyperparameters(['lr=1e-4', 'max_turns=8'])).toEqual({ lr: 1e-4, max_turns: 8 });
});

test.each([
  ['learning_rate=1e-4', 'did you mean lr=1e-4?'],
  ['trainer.lr=1e-4', 'did you mean lr=1e-4?'],
  ['num_generations=16', 'did you mean n_samples_per_prompt=16?'],
  ['save_steps=5', 'did you mean ckpt_interval=5?'],
  ['temprature=0.7', 'did you mean temperature=0.7?'],
  ['Lr', 'did you mean lr=NUMBER?'],
])('for a name of another trainer the error suggests our name: %s', (given, hint) => {
  expect(() => hyperparameters([given])).toThrow(`${JSON.stringify(given)} is not understood: ${hint}`);
});

test.each(['lr', 'weight_decay=0.1', 'repetition_penalty=1.1', '=3'])(
  'a text that is not NAME=NUMBER, or names a setting that cannot change during a run, gets the names that can: %s',
  (given) => {
    expect(() => hyperparameters([given])).toThrow(/is not understood: give NAME=NUMBER, NAME one of lr, /);
  },
);
