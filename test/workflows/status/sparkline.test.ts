import { describe, expect, it } from 'vitest';
import { sparkline } from '../../../src/workflows/status/run-details.js';

describe('a curve in one line of text', () => {
  it('is scaled from the least to the greatest value', () => {
    expect(sparkline([0, 1, 2, 3, 4, 5, 6, 7])).toBe('▁▂▃▄▅▆▇█');
    expect(sparkline([0.9, 0.1])).toBe('█▁');
  });

  it('is flat in the middle if nothing changes, and empty for fewer than two values', () => {
    expect(sparkline([0.3, 0.3, 0.3])).toBe('▄▄▄');
    expect(sparkline([0.3])).toBe('');
    expect(sparkline([])).toBe('');
  });

  it('averages a long series, and keeps its two ends distinct', () => {
    const long = sparkline(Array.from({ length: 1000 }, (_, index) => index));
    expect(long).toHaveLength(12);
    expect(long.startsWith('▁')).toBe(true);
    expect(long.endsWith('█')).toBe(true);
  });
});
