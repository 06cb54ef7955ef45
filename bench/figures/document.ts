// Writes the tables of figures in docs/benchmarks.md from the stored results. The text around the tables is written by hand.
import { readFileSync, writeFileSync } from 'node:fs';
import { figureDefinitions } from './definitions.js';
import { evaluate } from './figure.js';
import { fromEarlier, type Results } from './results-file.js';

/** Units that are not shown: they add nothing to a figure's name. */
const plain = ['share', 'ratio', 'equal'];

const begin = '<!-- figures: written by `npm run bench -- --full` -->';
const end = '<!-- end of figures -->';

export function documentResults(path: string, results: Results): void {
  const text = readFileSync(path, 'utf8');
  const [before, rest] = [text.split(begin)[0], text.split(end)[1]];
  if (before === undefined || rest === undefined || before === text) {
    throw new Error(`${path} has lost its marks "${begin}" and "${end}": restore them around the table`);
  }
  writeFileSync(path, `${before}${begin}\n\n${figuresTable(results)}\n${end}${rest}`);
}

/** A table for each commit at which something was measured, in the order of the figures. A value that misses its bar is bold. */
export function figuresTable(results: Results): string {
  const parts = new Map(Object.entries(results.parts).map(([name, part]) => [name, fromEarlier(part)]));
  const tables = new Map<string, string[]>();
  const missing: string[] = [];
  for (const definition of figureDefinitions) {
    const { name, value, unit, bar, holds, measured, stolen } = evaluate(definition, parts);
    if (value === null || !measured) {
      missing.push(`\`${name}\``);
      continue;
    }
    const shown = value.toLocaleString('en', { maximumSignificantDigits: 4 });
    const withUnit = plain.includes(unit) ? shown : `${shown} ${unit}`;
    const what = [definition.what, stolen && `${(stolen * 100).toFixed(0)} % stolen`]
      .filter(Boolean)
      .join('; ');
    const { machine, commit, date } = measured;
    const title = `\`${commit}\`, ${date.slice(0, 10)}, ${machine}:`;
    const verdict = !bar || holds ? withUnit : `**${withUnit}**`;
    const cells = [`\`${name}\``, bar ? `${verdict} (${bar})` : verdict, what].filter(Boolean);
    tables.set(title, [...(tables.get(title) ?? []), cells.join(' | ')]);
  }
  const texts = [...tables].map(([title, rows]) =>
    [title, '', 'figure | value (bar) | what', '---|---|---', ...rows, ''].join('\n'),
  );
  if (missing.length > 0) texts.push(`Not measured: ${missing.join(', ')}.\n`);
  return texts.join('\n');
}
