import { describe, expect, it } from 'vitest';
import { sparkline } from '../../../src/workflows/status/sparkline.js';

describe('a curve in a line of text', () => {
  it('goes from the least to the greatest value', () => {
    expect(sparkline([0, 1, 2, 3, 4, 5, 6, 7])).toBe('▁▂▃▄▅▆▇█');
    expect(sparkline([0.9, 0.1])).toBe('█▁');
  });

  it('is flat in the middle where nothing changes, and nothing where there is no curve', () => {
    expect(sparkline([0.3, 0.3, 0.3])).toBe('▄▄▄');
    expect(sparkline([0.3])).toBe('');
    expect(sparkline([])).toBe('');
  });

  it('averages a long series, and keeps its ends apart', () => {
    const long = sparkline(Array.from({ length: 1000 }, (_, index) => index));
    expect(long).toHaveLength(16);
    expect(long.startsWith('▁')).toBe(true);
    expect(long.endsWith('█')).toBe(true);
  });
});
