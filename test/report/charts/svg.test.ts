import { expect, test } from 'vitest';
import { element, linearScale, polyline, stepAxis, text } from '../../../src/report/charts/svg.js';

const plot = { left: 0, right: 100, top: 0, bottom: 50 };

test('text and attributes are escaped, and numbers are rounded to a tenth', () => {
  expect(text(`a < b & "c" 'd'`, 1.04, -2.06, { class: '"><script>' })).toBe(
    '<text x="1" y="-2.1" class="&quot;&gt;&lt;script&gt;">a &lt; b &amp; &quot;c&quot; &#39;d&#39;</text>',
  );
  expect(element('rect', { width: 1 / 3 })).toBe('<rect width="0.3"/>');
  expect(polyline([{ x: 1.25, y: 0 }], { class: 'line' })).toBe('<polyline class="line" points="1.3,0"/>');
  expect(polyline([], {})).toBe('');
});

test('a scale maps both ends, and a range of a single value to the middle', () => {
  const down = linearScale([0, 4], [50, 10]);
  expect([0, 1, 4].map(down)).toEqual([50, 40, 10]);
  expect(linearScale([7, 7], [0, 100])(7)).toBe(50);
});

test('steps on an axis are whole numbers, and a single step is shown', () => {
  const shown = (first: number, last: number): string[] =>
    [...stepAxis(first, last, 6, linearScale([first, last], [0, 100]), plot).matchAll(/>([^<]*)</g)].map(
      ([, step]) => step ?? '',
    );
  expect(shown(0, 3).filter((step) => step.trim() !== '')).toEqual(['0', '1', '2', '3']);
  expect(shown(0, 3_000).filter((step) => step.trim() !== '')).toContain('1,000');
  expect(shown(7, 7)).toEqual(['7']);
  for (const [first, last] of [
    [24, 190],
    [2, 101],
    [480, 1_030],
  ] as const) {
    const small = stepAxis(first, last, 3.2, linearScale([first, last], [0, 100]), plot);
    expect(small.match(/<text/g)?.length, `${first} to ${last}`).toBeGreaterThan(1);
  }
  expect(shown(0, Number.MAX_SAFE_INTEGER).length).toBeGreaterThan(1);
  expect(shown(Number.MAX_SAFE_INTEGER - 1, Number.MAX_SAFE_INTEGER).length).toBeLessThan(4);
});
