// Rows of task files that come in pieces of any size.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Row, RowReader } from '../../src/data/row-reader.js';

function read(pieces: readonly string[]): { rows: Row[]; problems: string[] } {
  const problems: string[] = [];
  const reader = new RowReader(problems);
  const rows = pieces.flatMap((piece) => [...reader.push(piece)]);
  return { rows: [...rows, ...reader.end()], problems };
}

/** The text in pieces that end at these places. */
const cut = (text: string, at: readonly number[]): string[] => {
  const ends = [...at.map((place) => Math.floor(place * text.length)), text.length].sort((a, b) => a - b);
  return ends.map((end, index) => text.slice(ends[index - 1] ?? 0, end));
};

const row = fc.dictionary(fc.string(), fc.jsonValue()).filter((value) => !('tasks' in value));
const forms: Record<string, (rows: readonly unknown[], indent: number) => string> = {
  lines: (rows) => rows.map((one) => `${JSON.stringify(one)}\n`).join(''),
  'an array': (rows, indent) => JSON.stringify(rows, null, indent),
  'an object with tasks': (rows, indent) =>
    JSON.stringify(
      { version: 'v3', from: { a: ['tasks', '{'] }, tasks: rows, count: rows.length },
      null,
      indent,
    ),
};

describe('the rows of a file', () => {
  it.each(Object.entries(forms))('as %s are the same, however it is cut', (_, write) => {
    fc.assert(
      fc.property(
        fc.array(row, { minLength: 1 }),
        fc.constantFrom(0, 2),
        fc.array(fc.double({ min: 0, max: 1, noNaN: true })),
        (rows, indent, at) => {
          const found = read(cut(write(rows, indent), at));
          expect(found.problems).toEqual([]);
          expect(found.rows.map(({ value }) => value)).toEqual(JSON.parse(JSON.stringify(rows)));
        },
      ),
    );
  });

  it('that was cut off are named', () => {
    const tasks = [{ a: 1 }, { b: '],}' }];
    expect(read([JSON.stringify(tasks).slice(0, -1)]).problems).toEqual([
      'task 2: the file seems cut off: its array does not end here',
    ]);
    expect(read([JSON.stringify(tasks).slice(0, -4)])).toEqual({
      rows: [{ place: 'task 1', value: { a: 1 } }],
      problems: ['task 2: the file seems cut off: its array does not end here'],
    });
  });

  it('of an array that are not JSON are named, and the others read', () => {
    expect(read(['[{"a":1}, {a:2}, {"a":3}]'])).toEqual({
      rows: [
        { place: 'task 1', value: { a: 1 } },
        { place: 'task 3', value: { a: 3 } },
      ],
      problems: ['task 2: not JSON'],
    });
  });

  it('of a first line that is longer than the head are lines', () => {
    const long = { text: 'x'.repeat(100_000) };
    const text = [long, { b: 2 }].map((one) => `${JSON.stringify(one)}\n`).join('');
    expect(read(cut(text, [0.3, 0.9])).rows.map(({ place }) => place)).toEqual(['line 1', 'line 2']);
  });

  it.each(['[{"a":1}]\n[{"a":2}]', '[{"a":1}]{garbage', '{"tasks":[{"a":1}]}\n{"tasks":[{"a":2}]}'])(
    'of %j are not taken for those of one array',
    (text) => {
      expect(read([text]).problems).toEqual([
        'after task 1: there is text after the array of tasks; a file must contain only one array',
      ]);
    },
  );

  it('of an array that a brace closes are not JSON', () => {
    expect(read(['[1}']).problems).toContain('task 1: not JSON');
  });

  it.each(['', '\n\n', '[]', '{"tasks": []}'])('of %j are none', (text) => {
    expect(read([text])).toEqual({ rows: [], problems: [] });
  });
});
