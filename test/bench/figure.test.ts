import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { documentResults } from '../../bench/document.js';
import { evaluate, type FigureDefinition, type MeasuredPart, median } from '../../bench/figure.js';
import { figureDefinitions } from '../../bench/figures.js';
import { parts } from '../../bench/parts.js';
import { readResults, type Results, writeResults } from '../../bench/results-file.js';

const definition: FigureDefinition = {
  ...{ name: 'wait', measurement: 'waits', unit: 'ms', bar: { atMost: 150 }, what: 'a wait' },
  value: (of) => of('waits', 'p50'),
};
const measured = (p50: number, more: Partial<MeasuredPart> = {}): Map<string, MeasuredPart> =>
  new Map([
    [
      'waits',
      {
        ...{ date: '2026-01-02T00:00:00.000Z', commit: 'abc1234', values: { p50 }, notes: [], stolen: 0 },
        ...{ current: true, fresh: true, ...more },
      },
    ],
  ]);

describe('a figure', () => {
  it('holds up to its bar and not beyond, however it is rounded for reading', () => {
    expect(evaluate(definition, measured(150))).toMatchObject({ value: 150, bar: '≤ 150', holds: true });
    expect(evaluate(definition, measured(150.01))).toMatchObject({ value: 150, holds: false });
  });

  it('does not hold when it was not measured', () => {
    expect(evaluate(definition, new Map())).toMatchObject({ value: null, holds: false });
    expect(evaluate(definition, measured(Number.NaN))).toMatchObject({ holds: false });
  });

  it('does not hold when the measured code has changed since, and says when it was measured', () => {
    const figure = evaluate(definition, measured(10, { current: false, fresh: false }));
    expect(figure).toMatchObject({
      value: 10,
      holds: false,
      measured: { date: '2026-01-02T00:00:00.000Z', commit: 'abc1234' },
      note: 'the measured code has changed since',
    });
  });

  it('says how much of the CPU time others got while it was measured', () => {
    expect(evaluate(definition, measured(10, { stolen: 0.01 })).note).toBeUndefined();
    expect(evaluate(definition, measured(10, { stolen: 0.25 }))).toMatchObject({
      holds: true,
      note: '25 % of the CPU time went to others',
    });
  });

  it('has one of each name, and a part that measures it', () => {
    const names = figureDefinitions.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    for (const figure of figureDefinitions) {
      const read: string[] = [];
      figure.value((part) => {
        read.push(part);
        return 1;
      });
      const measurable = parts
        .filter((part) => part.measurement === figure.measurement)
        .map(({ name }) => name);
      expect(measurable, figure.name).toEqual(expect.arrayContaining(read));
    }
  });

  it('takes the middle of an odd number and the mean of the two middle ones of an even one', () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
    expect(median([])).toBeNaN();
  });
});

describe('the results of a full run', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-bench-test-'));
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('are read as they were written, and fill the marked place of the document alone', () => {
    const path = join(folder, 'results.json');
    expect(readResults(path)).toMatchObject({ machine: null, parts: {} });
    const results: Results = {
      schema: 'longhaul.bench/1',
      machine: { cpu: 'Test CPU', cores: 2, memoryGiB: 4, node: 'v20' },
      parts: {
        store: {
          date: '2026-01-02T00:00:00.000Z',
          commit: 'abc1234',
          code: 'c',
          values: { puts_per_second: 7 },
          notes: [],
        },
      },
    };
    writeResults(path, results);
    expect(readResults(path)).toEqual(results);
    const document = join(folder, 'benchmarks.md');
    const shipped = readFileSync(new URL('../../docs/benchmarks.md', import.meta.url), 'utf8');
    writeFileSync(document, shipped);
    documentResults(document, results);
    const written = readFileSync(document, 'utf8');
    expect(written).toContain('Test CPU, 2 cores');
    expect(written).toContain('| `store_puts_per_second` | 7 1/s |');
    expect(written).toContain('the measured code has changed since');
    expect(written.split('\n')[0]).toBe(shipped.split('\n')[0]);
    expect(written.slice(written.indexOf('<!-- end'))).toBe(shipped.slice(shipped.indexOf('<!-- end')));
  });
});
