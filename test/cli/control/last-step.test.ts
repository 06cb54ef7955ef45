// `longhaul stop RUN --step N`: which steps it accepts.
import { expect, it } from 'vitest';
import { lastStep } from '../../../src/cli/control/control-commands.js';

it('accepts the current step and later ones, and takes the current step if none is given', () => {
  expect(lastStep('a', 220, { step: 300 })).toBe(300);
  expect(lastStep('a', 220, { step: 220 })).toBe(220);
  expect(lastStep('a', 220, {})).toBe(220);
  expect(lastStep('a', -1, {})).toBe(0);
  expect(lastStep('a', -1, { step: 0 })).toBe(0);
});

it('refuses a step that is past, and names the command that ends the run now', () => {
  expect(() => lastStep('a', 220, { step: 22 })).toThrow(
    'a is at step 220: step 22 is past. `longhaul stop a` without --step ends it after the current step',
  );
  expect(() => lastStep('a', 220, { step: 219, folder: 'elsewhere' })).toThrow(
    '`longhaul stop a --folder elsewhere`',
  );
});
