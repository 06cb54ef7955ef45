// `npm run bench [NAME] [--json] [--full] [--again]`: every promised figure beside its bar; exit 1 where one does not hold.
import { join } from 'node:path';
import { Command } from 'commander';
import { documentResults } from './document.js';
import { evaluate, type Figure, type MeasuredPart, rounded } from './figure.js';
import { figureDefinitions } from './figures.js';
import { BenchSession, type Part, parts } from './parts.js';
import { codeHash, commit, machine, repository } from './repository.js';
import { fromEarlier, readResults, writeResults } from './results-file.js';
import { countStolenTime } from './stolen-time.js';

const measurements = [...new Set(parts.map((part) => part.measurement))];
const program = new Command('npm run bench --')
  .description('Measures every promised figure and prints it beside its bar; exit 1 where one does not hold')
  .argument('[name...]', `what is measured, or one figure of it: ${measurements.join(', ')} (default: all)`)
  .helpOption('-h, --help', 'show this')
  .option('--json', 'one JSON object a line: name, value, unit, bar, holds')
  .option(
    '--full',
    'also what takes long (hours in all; else its last result is printed); writes bench/results.json and docs/benchmarks.md',
  )
  .option('--again', 'with --full: measure again what is current already')
  .showHelpAfterError('`--help` lists what it takes.')
  .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : 2))
  .parse();
const options = program.opts<{ json?: boolean; full?: boolean; again?: boolean }>();
const wanted = wantedMeasurements(program.args);
const resultsPath = join(repository, 'bench/results.json');
const results = readResults(resultsPath);
const codes = new Map(parts.map(({ name }) => [name, codeHash(name)]));
const session = new BenchSession();
let interrupted = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => (interrupted = true));

const figures: Figure[] = [];
try {
  const measured = new Map<string, MeasuredPart>();
  if (!options.json) printHeading();
  for (const measurement of wanted) {
    for (const part of parts.filter((one) => one.measurement === measurement && !interrupted)) {
      const one = await measure(part);
      if (one) measured.set(part.name, one);
    }
    if (interrupted) break;
    for (const definition of figureDefinitions.filter((one) => one.measurement === measurement)) {
      const figure = evaluate(definition, measured);
      figures.push(figure);
      print(figure);
    }
  }
} finally {
  await session.close();
}
if (options.full) documentResults(join(repository, 'docs/benchmarks.md'), readResults(resultsPath));
const failed = figures.filter((figure) => !figure.holds);
if (!options.json && !interrupted) {
  const names = failed.map(({ name }) => name).join(', ');
  console.log(
    failed.length === 0 ? `\nAll ${figures.length} hold.` : `\n${failed.length} do not hold: ${names}`,
  );
}
process.exitCode = interrupted ? 130 : failed.length === 0 ? 0 : 1;

/** Null where it was not measured: the reason is on standard error. */
async function measure(part: Part): Promise<MeasuredPart | null> {
  const stored = results.parts[part.name];
  const code = codes.get(part.name) ?? '';
  const earlier = stored ? fromEarlier(stored, code) : null;
  if (part.measure === null) return earlier;
  if (part.long && (!options.full || (earlier?.current && !options.again))) return earlier;
  const begun = performance.now();
  const stolen = countStolenTime();
  process.stderr.write(`measuring ${part.name} …\n`);
  try {
    const { values, notes = [] } = await part.measure(session);
    const fresh = {
      ...{ date: new Date().toISOString(), commit: commit(), values, notes },
      stolen: rounded(stolen()),
    };
    process.stderr.write(`measured ${part.name} in ${((performance.now() - begun) / 1_000).toFixed(1)} s\n`);
    if (codeHash(part.name) !== code) throw new Error('the measured code changed meanwhile');
    if (options.full) store(part.name, { ...fresh, code });
    return { ...fresh, current: true, fresh: true };
  } catch (error) {
    process.stderr.write(`could not measure ${part.name}: ${(error as Error).message}\n`);
    if (options.full && !interrupted) store(part.name, null);
    return null;
  }
}

/** After each part, so that an interrupted `--full` goes on where it was. */
function store(name: string, part: (typeof results.parts)[string] | null): void {
  if (part) results.parts[name] = part;
  else delete results.parts[name];
  results.machine = machine();
  writeResults(resultsPath, results);
}

function wantedMeasurements(names: readonly string[]): string[] {
  if (names.length === 0) return measurements;
  const chosen = names.map((name) => {
    const found = measurements.includes(name)
      ? name
      : figureDefinitions.find((definition) => definition.name === name)?.measurement;
    if (found) return found;
    process.stderr.write(`There is no benchmark ${name}. Benchmarks: ${measurements.join(', ')}.\n`);
    return process.exit(2);
  });
  return measurements.filter((measurement) => chosen.includes(measurement));
}

function printHeading(): void {
  const { cpu, cores, memoryGiB, node } = machine();
  console.log(`${cpu}, ${cores} cores, ${memoryGiB} GiB, Node ${node}, commit ${commit()}\n`);
}

function print(figure: Figure): void {
  if (options.json) {
    console.log(JSON.stringify(figure));
    return;
  }
  const { name, value, unit, bar, holds, measured, note } = figure;
  const shown =
    value === null ? '–' : `${value.toLocaleString('en', { maximumSignificantDigits: 5 })} ${unit}`;
  const verdict = bar === null ? '' : holds ? 'holds' : 'DOES NOT HOLD';
  const when = measured ? `measured ${measured.date.slice(0, 10)} at ${measured.commit}` : '';
  const more = [when, note].filter(Boolean).join('; ');
  console.log(
    `${name.padEnd(36)} ${shown.padStart(20)}  ${(bar ?? '').padEnd(12)} ${verdict.padEnd(14)} ${more}`.trimEnd(),
  );
}
