import { expect, test } from 'vitest';
import { positionsFix } from '../../src/spec/combinations.js';

test('no fix proposes a length that hardly holds a prompt without saying so', () => {
  expect(positionsFix(512, 'raise it')).toMatch(
    /^512 tokens hold only short prompts .*: use a model with more/,
  );
  expect(positionsFix(512, 'raise it')).toContain('max_input_length and max_generate_length');
  expect(positionsFix(32_768, 'raise it')).toBe('lower it, or raise it');
});
