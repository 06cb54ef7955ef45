import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { chartSvg, drawChart, mostLines } from '../../../src/integrations/slack/chart-picture.js';

const line = (name: string, values: number[]) => ({
  name,
  points: values.map((value, index) => ({ step: index * 20, value })),
});

const pngHead = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

describe('the chart of pass rates', () => {
  test('is a PNG of 800 × 400', async () => {
    const png = Buffer.from((await drawChart({ title: 'nightly', lines: [line('all', [0.2, 0.5, 0.8])] }))!);
    expect(png.subarray(0, 8).equals(pngHead)).toBe(true);
    expect([png.readUInt32BE(16), png.readUInt32BE(20)]).toEqual([800, 400]);
  });

  test('has text, whatever fonts the machine has', async () => {
    const values = [0.2, 0.5, 0.8];
    const [first, second] = await Promise.all(
      ['nightly', 'evenings'].map((title) => drawChart({ title, lines: [line('all', values)] })),
    );
    expect(Buffer.from(first!).equals(Buffer.from(second!))).toBe(false);
  });

  test('is null if there is nothing to show', async () => {
    expect(await drawChart({ title: 'nightly', lines: [] })).toBeNull();
    expect(await drawChart({ title: 'nightly', lines: [line('all', [NaN, 7])] })).toBeNull();
  });

  const step = fc.oneof(fc.nat(1_000), fc.maxSafeInteger(), fc.double());
  const value = fc.oneof(fc.double({ min: 0, max: 1, noNaN: true }), fc.double());

  test('can be drawn for any names and figures', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: 'binary' }),
        fc.array(
          fc.record({
            name: fc.string({ unit: 'binary' }),
            points: fc.array(fc.record({ step, value }), { maxLength: 60 }),
          }),
          { maxLength: 12 },
        ),
        async (title, lines) => {
          const svg = chartSvg({ title, lines });
          if (svg === null) return;
          expect(svg).not.toMatch(/NaN|Infinity|undefined/);
          await expect(drawChart({ title, lines })).resolves.not.toBeNull();
        },
      ),
      { numRuns: 25 },
    );
  });

  test('says how many lines are left out', () => {
    const lines = Array.from({ length: mostLines + 3 }, (_, index) =>
      line(`environment ${index}`, [0.5, 0.6]),
    );
    expect(chartSvg({ title: 'nightly', lines })).toContain('and 3 more');
  });
});
