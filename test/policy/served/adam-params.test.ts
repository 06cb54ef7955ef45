// What of a step's plan the optimizer of a Tinker server is given.
import { expect, test } from 'vitest';
import { adamOf } from '../../../src/policy/served/step-requests.js';

const plan = {
  optimizer: {
    learning_rates: [1e-4, 2e-4],
    adam_betas: [0.9, 0.99] as [number, number],
    ...{ adam_eps: 1e-8, weight_decay: 0.01, max_grad_norm: 0.5, reset_moments: false },
  },
};

test('the rate of the mini-batch, and max_grad_norm only where the server clips', () => {
  const always = { learning_rate: 2e-4, beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.01 };
  expect(adamOf(plan, 1, { clips: false })).toEqual(always);
  expect(adamOf(plan, 1, { clips: true })).toEqual({ ...always, grad_clip_norm: 0.5 });
});
