import { describe, expect, it } from 'vitest';
import { printable } from '../../src/cli/output.js';

describe('printed text', () => {
  it.each([
    ['a colour', '\u001b[31mred', '\\u001b[31mred'],
    ['a write to the clipboard', '\u001b]52;c;cm0gLXJm\u0007', '\\u001b]52;c;cm0gLXJm\\u0007'],
    ['an eight-bit control', '\u009b2J', '\\u009b2J'],
    ['a carriage return over earlier text', 'safe\rrm -rf', 'safe\\u000drm -rf'],
    ['backspaces', 'a\b\u007f', 'a\\u0008\\u007f'],
    ['a change of the writing direction', 'abc\u202edcba', 'abc\\u202edcba'],
  ])('spells out %s instead of performing it', (_what, text, shown) => {
    expect(printable(text)).toBe(shown);
  });

  it('leaves everything else unchanged', () => {
    const text = 'lines\n\ttabs, “quotes”, Ü, 漢字, 👩‍🚀, العربية\n';
    expect(printable(text)).toBe(text);
  });
});
