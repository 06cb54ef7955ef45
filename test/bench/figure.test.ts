import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { figureDefinitions } from '../../bench/figures/definitions.js';
import { documentResults } from '../../bench/figures/document.js';
import {
  evaluate,
  type FigureDefinition,
  type MeasuredPart,
  median,
  meets,
  partsOf,
} from '../../bench/figures/figure.js';
import { commit } from '../../bench/figures/provenance.js';
import { fromEarlier, readResults, type Results, writeResults } from '../../bench/figures/results-file.js';
import { parts } from '../../bench/parts.js';
import { scratchFolder } from '../support/scratch-folder.js';

const provenance = { date: '2026-01-02T00:00:00.000Z', commit: 'abc1234', machine: 'Test CPU, 2 cores' };
const definition: FigureDefinition = {
  ...{ name: 'wait', benchmark: 'waits', unit: 'ms', bar: '≤ 150', what: 'a wait' },
  value: (of) => of('waits', 'p50'),
};
const measured = (p50: number, more: Partial<MeasuredPart> = {}): Map<string, MeasuredPart> =>
  new Map([['waits', { ...provenance, values: { p50 }, notes: [], stolen: 0, fresh: true, ...more }]]);

describe('a figure', () => {
  it('meets its bar up to exactly the bar’s value, however it is rounded for display', () => {
    expect(evaluate(definition, measured(150))).toMatchObject({ value: 150, bar: '≤ 150', holds: true });
    expect(evaluate(definition, measured(150.01))).toMatchObject({ value: 150, holds: false });
  });

  it('misses its bar when it was not measured', () => {
    expect(evaluate(definition, new Map())).toMatchObject({ value: null, holds: false });
    expect(evaluate(definition, measured(Number.NaN))).toMatchObject({ holds: false });
  });

  it('of an earlier command is judged by its value, and says when, where and from which code it was measured', () => {
    const stored = { ...provenance, values: { p50: 10 }, notes: [] };
    expect(evaluate(definition, new Map([['waits', fromEarlier(stored)]]))).toEqual({
      ...{ name: 'wait', value: 10, unit: 'ms', bar: '≤ 150', holds: true, measured: provenance },
    });
    expect(evaluate(definition, measured(10))).not.toHaveProperty('measured');
  });

  it('says how much CPU time other virtual machines got while it was measured', () => {
    expect(evaluate(definition, measured(10, { stolen: 0.01 }))).not.toHaveProperty('stolen');
    expect(evaluate(definition, measured(10, { stolen: 0.25 }))).toMatchObject({ holds: true, stolen: 0.25 });
  });

  it('has a unique name and a part that measures it', () => {
    const names = figureDefinitions.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    const measurable = parts.map(({ name }) => name);
    for (const figure of figureDefinitions)
      expect(measurable, figure.name).toEqual(expect.arrayContaining(partsOf(figure)));
    const read = new Set(figureDefinitions.flatMap(partsOf));
    expect(measurable.filter((name) => !read.has(name))).toEqual([]);
  });
});

it('a bar includes or excludes its bounds as written', () => {
  expect([1.9, 2, 2.1].map((value) => meets(value, '≤ 2'))).toEqual([true, true, false]);
  expect([1.9, 2, 2.1].map((value) => meets(value, '< 2'))).toEqual([true, false, false]);
  expect([1.9, 2, 2.1].map((value) => meets(value, '≥ 2'))).toEqual([false, true, true]);
  expect([1.9, 2, 2.1].map((value) => meets(value, '= 2'))).toEqual([false, true, false]);
  expect([0, 1, 2, 3, 4].map((value) => meets(value, '1 to 3'))).toEqual([false, true, true, true, false]);
  expect(meets(7, '')).toBe(true);
});

it('a median is the middle value, or the mean of the two middle values', () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1, 2, 3])).toBe(2.5);
  expect(median([])).toBeNaN();
});

describe('the stored results', () => {
  const folder = scratchFolder();
  const path = join(folder, 'results.json');
  const shipped = new URL('../../docs/benchmarks.md', import.meta.url);

  it('are read back as they were written, and replace only the marked part of the document', () => {
    expect(readResults(path)).toMatchObject({ parts: {} });
    const values = { one_token_us: 7 };
    const results: Results = {
      schema: 'longhaul.bench/2',
      parts: { engine: { ...provenance, values, notes: [], stolen: 0.25 } },
    };
    writeResults(path, results);
    expect(readResults(path)).toEqual(results);
    const document = join(folder, 'benchmarks.md');
    const before = readFileSync(shipped, 'utf8');
    writeFileSync(document, before);
    documentResults(document, results);
    const written = readFileSync(document, 'utf8');
    expect(written).toContain('`abc1234`, 2026-01-02, Test CPU, 2 cores:\n\nfigure | value (bar) | what\n');
    expect(written).toContain('`engine_one_token` | 7 µs | one token, cached prompt; 25 % stolen\n');
    expect(written).toContain('Not measured: `quickstart_seconds`');
    expect(written.split('\n')[0]).toBe(before.split('\n')[0]);
    expect(written.slice(written.indexOf('<!-- end'))).toBe(before.slice(before.indexOf('<!-- end')));
  });

  it('are the same as in docs/benchmarks.md', () => {
    const document = join(folder, 'shipped.md');
    const text = readFileSync(shipped, 'utf8');
    writeFileSync(document, text);
    documentResults(document, readResults(new URL('../../bench/results.json', import.meta.url).pathname));
    expect(readFileSync(document, 'utf8')).toBe(text);
  });

  it('belong to parts that still exist', () => {
    const { parts: stored } = readResults(new URL('../../bench/results.json', import.meta.url).pathname);
    expect(parts.map(({ name }) => name)).toEqual(expect.arrayContaining(Object.keys(stored)));
  });
});

it('the recorded commit is the checkout’s', () => {
  expect(commit()).toMatch(/^[0-9a-f]{7,}\+?$|^unknown$/);
});
