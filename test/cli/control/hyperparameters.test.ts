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
])('another name is answered with ours: %s', (given, hint) => {
  expect(() => hyperparameters([given])).toThrow(`${JSON.stringify(given)} is not understood: ${hint}`);
});

test.each(['lr', 'weight_decay=0.1', 'repetition_penalty=1.1', '=3'])(
  'what is no setting with a number, or cannot change while a run goes on, is answered with what can: %s',
  (given) => {
    expect(() => hyperparameters([given])).toThrow(/is not understood: give NAME=NUMBER, NAME one of lr, /);
  },
);
