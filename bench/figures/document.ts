// The table of figures in docs/benchmarks.md, from the stored results; the prose around it is written by hand.
import { readFileSync, writeFileSync } from 'node:fs';
import { figureDefinitions } from './definitions.js';
import { evaluate } from './figure.js';
import { fromEarlier, type Results } from './results-file.js';

/** Units that say nothing beside a figure's name. */
const plain = ['share', 'ratio', 'equal'];

const begin = '<!-- figures: written by `npm run bench -- --full` -->';
const end = '<!-- end of figures -->';

export function documentResults(path: string, results: Results): void {
  const text = readFileSync(path, 'utf8');
  const [before, rest] = [text.split(begin)[0], text.split(end)[1]];
  if (before === undefined || rest === undefined || before === text) {
    throw new Error(`${path} has lost its marks "${begin}" and "${end}": put the table's place back`);
  }
  writeFileSync(path, `${before}${begin}\n\n${figuresTable(results)}\n${end}${rest}`);
}

export function figuresTable(results: Results): string {
  const parts = new Map(Object.entries(results.parts).map(([name, part]) => [name, fromEarlier(part)]));
  const days = new Map<string, Set<string>>();
  const rows = figureDefinitions.map((definition) => {
    const { name, value, unit, bar, holds, measured, stolen } = evaluate(definition, parts);
    const shown = value === null ? '–' : value.toLocaleString('en', { maximumSignificantDigits: 4 });
    const withUnit = value === null || plain.includes(unit) ? shown : `${shown} ${unit}`;
    const verdict = value === null || bar === null ? '' : holds ? 'yes' : '**no**';
    if (measured) {
      const { machine, commit, date } = measured;
      days.set(machine, (days.get(machine) ?? new Set()).add(`\`${commit}\` ${date.slice(0, 10)}`));
    }
    const what = [definition.what, stolen && `${(stolen * 100).toFixed(0)} % stolen`]
      .filter(Boolean)
      .join('; ');
    return `| \`${name}\` | ${withUnit} | ${bar ?? ''} | ${verdict} | ${measured?.commit ?? ''} | ${what} |`;
  });
  return [
    '| figure | value | bar | holds | commit | |',
    '|---|---|---|---|---|---|',
    ...rows,
    '',
    ...[...days].map(([machine, commits]) => `${machine}: ${[...commits].sort().join(', ')}.`),
    '',
  ].join('\n');
}
