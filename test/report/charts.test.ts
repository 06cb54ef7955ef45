// Rows of small charts are filled evenly, and each axis has a scale.
import { expect, test } from 'vitest';
import { trendFigures } from '../../src/report/charts/trajectory-trends.js';

const figures = (count: number, last = 40) =>
  trendFigures(
    Array.from({ length: count }, (_, index) => ({
      title: `figure ${index}`,
      points: Array.from({ length: last }, (_, step) => ({ x: step + 1, y: step })),
      format: String,
    })),
  );

test.each([
  [1, 3],
  [2, 3],
  [3, 3],
  [4, 2],
  [5, 3],
  [7, 4],
])('%i charts are in rows of %i', (count, columns) => {
  expect(figures(count)).toMatch(new RegExp(`^<div class="trends columns-${columns}">`));
});
