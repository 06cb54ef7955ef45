// Writes the table of docs/benchmarks.md from bench/results.json; the prose around it is written by hand.
import { readFileSync, writeFileSync } from 'node:fs';
import { evaluate, type Figure } from './figure.js';
import { figureDefinitions } from './figures.js';
import { codeHash } from './repository.js';
import { fromEarlier, type Results } from './results-file.js';

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
  const measured = new Map(
    Object.entries(results.parts).map(([name, part]) => [name, fromEarlier(part, codeHash(name))]),
  );
  const { machine } = results;
  const machineLine = machine
    ? `Machine: ${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB, Node ${machine.node}.`
    : 'Not measured yet.';
  const rows = figureDefinitions.map((definition) => row(evaluate(definition, measured), definition.what));
  return [
    machineLine,
    '',
    '| figure | value | bar | holds | measured | what it is |',
    '|---|---|---|---|---|---|',
    ...rows,
    '',
  ].join('\n');
}

function row({ name, value, unit, bar, holds, measured, note }: Figure, what: string): string {
  const shown =
    value === null ? '–' : `${value.toLocaleString('en', { maximumSignificantDigits: 4 })} ${unit}`;
  const verdict = value === null ? 'not measured' : bar === null ? '' : holds ? 'yes' : '**no**';
  const when = measured ? `${measured.date.slice(0, 10)}, ${measured.commit}` : '';
  const more = note && value !== null ? `${what} (${note})` : what;
  return `| \`${name}\` | ${shown} | ${bar ?? ''} | ${verdict} | ${when} | ${more} |`;
}
