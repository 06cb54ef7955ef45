import fc from 'fast-check';
import { expect, test } from 'vitest';
import { recordedText } from '../../../../src/activities/step/episode-record.js';
import { canonicalText } from '../../../../src/store/records/canonical.js';

test('the recorded text has the same words, on one line', () => {
  expect(recordedText('no task\n  "T-1" \u001b[31mhere\u202e\u0000')).toBe('no task "T-1" [31mhere');
});

test('the recorded text has at most 500 printable characters and fits into a record, whatever a server sends', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 2000 }), (text) => {
      const recorded = recordedText(text);
      expect([...recorded].length).toBeLessThanOrEqual(500);
      expect(recorded).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}]/u);
      expect(JSON.parse(canonicalText(recorded))).toBe(recorded);
    }),
  );
  expect([...recordedText('ü'.repeat(10_000_000))]).toHaveLength(500);
  expect(() => canonicalText(recordedText(`${'a'.repeat(9_999)}😀`))).not.toThrow();
});
