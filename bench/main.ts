// `npm run bench [NAME] [--json] [--full] [--again]`: prints every figure with its bar. Exits with 1 if a figure misses its bar.
import { join } from 'node:path';
import { Command } from 'commander';
import { misses, readGpuReports } from '../src/engine/native/gpu-reports.js';
import { figureDefinitions } from './figures/definitions.js';
import { documentResults } from './figures/document.js';
import {
  evaluate,
  type Figure,
  type FigureDefinition,
  type MeasuredPart,
  partsOf,
  rounded,
} from './figures/figure.js';
import { gpuReportText, noGpuReport } from './figures/gpu-reports.js';
import { commit, machine } from './figures/provenance.js';
import { fromEarlier, readResults, type StoredPart, writeResults } from './figures/results-file.js';
import { countStolenTime } from './figures/stolen-time.js';
import { type Part, parts } from './parts.js';
import { QuickstartRuns } from './quickstart/quickstart.js';
import { repository } from './repository.js';

const benchmarks = [...new Set(figureDefinitions.map(({ benchmark }) => benchmark))];
const program = new Command('npm run bench --')
  .description(
    'Measures every figure and prints it beside its limit; exit code 1 if a figure misses its limit',
  )
  .argument(
    '[name...]',
    `a benchmark or one of its figures: ${benchmarks.join(', ')} (default: all); or gpu: what was reported`,
  )
  .helpOption('-h, --help', 'show this')
  .option('--json', 'one JSON object a line: name, value, unit, bar, holds')
  .option(
    '--full',
    'also measure slow figures (hours in total; without --full their last result is printed), and write bench/results.json and docs/benchmarks.md',
  )
  .option('--again', 'with --full: measure again even what was measured for this commit on this machine')
  .showHelpAfterError('`--help` lists the options.')
  .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : 2))
  .parse();
const options = program.opts<{ json?: boolean; full?: boolean; again?: boolean }>();
if (program.args.includes('gpu')) process.exit(printGpuReports());
const wanted = wantedFigures(program.args);
const resultsPath = join(repository, 'bench/results.json');
const results = readResults(resultsPath);
const here = { commit: commit(), machine: machine() };
const runs = new QuickstartRuns();
let interrupted = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => (interrupted = true));

const figures: Figure[] = [];
const measured = new Map<string, MeasuredPart | null>();
try {
  if (!options.json) console.log(`${here.machine}, commit ${here.commit}\n`);
  for (const definition of wanted) {
    for (const name of partsOf(definition))
      if (!interrupted && !measured.has(name)) measured.set(name, await measure(partNamed(name)));
    if (interrupted) break;
    const figure = evaluate(definition, measured);
    figures.push(figure);
    print(figure);
  }
} finally {
  await runs.close();
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

/** Returns the exit code. GPUs are measured elsewhere, so no figure of this machine belongs to them. */
function printGpuReports(): number {
  const reports = readGpuReports(join(repository, 'docs/gpu'));
  if (reports.length === 0) process.stderr.write(`${noGpuReport}\n`);
  for (const report of reports) {
    if (!options.json) console.log(`${gpuReportText(report)}\n`);
    else for (const row of report.rows) console.log(JSON.stringify(row));
  }
  return reports.some(misses) ? 1 : 0;
}

/** Null if the part could not be measured; standard error gets the reason. */
async function measure(part: Part): Promise<MeasuredPart | null> {
  const stored = results.parts[part.name];
  const earlier = stored ? fromEarlier(stored) : null;
  if (part.measure === null) return earlier;
  if (part.long && (!options.full || (stored && isOfNow(stored) && !options.again))) return earlier;
  const begun = performance.now();
  const stolen = countStolenTime();
  process.stderr.write(`measuring ${part.name} …\n`);
  try {
    const { values, notes = [] } = await part.measure(runs);
    const fresh = { date: new Date().toISOString(), ...here, values, notes, stolen: rounded(stolen()) };
    process.stderr.write(`measured ${part.name} in ${((performance.now() - begun) / 1_000).toFixed(1)} s\n`);
    if (options.full) store(part.name, fresh);
    return { ...fresh, fresh: true };
  } catch (error) {
    process.stderr.write(`could not measure ${part.name}: ${(error as Error).message}\n`);
    return null;
  }
}

/** Whether this commit has already measured the part on this machine. An interrupted `--full` skips such parts when it starts again. */
function isOfNow(stored: StoredPart): boolean {
  return !here.commit.endsWith('+') && stored.commit === here.commit && stored.machine === here.machine;
}

function store(name: string, part: StoredPart): void {
  results.parts[name] = part;
  writeResults(resultsPath, results);
}

function partNamed(name: string): Part {
  const part = parts.find((one) => one.name === name);
  if (!part) throw new Error(`no part ${name} is measured`);
  return part;
}

function wantedFigures(names: readonly string[]): readonly FigureDefinition[] {
  for (const name of names) {
    if (figureDefinitions.some((one) => one.name === name || one.benchmark === name)) continue;
    process.stderr.write(`There is no benchmark ${name}. Benchmarks: ${benchmarks.join(', ')}.\n`);
    process.exit(2);
  }
  return figureDefinitions.filter(
    ({ name, benchmark }) => names.length === 0 || names.includes(name) || names.includes(benchmark),
  );
}

function print(figure: Figure): void {
  if (options.json) {
    console.log(JSON.stringify(figure));
    return;
  }
  const { name, value, unit, bar, holds, stolen, note } = figure;
  const shown =
    value === null ? '–' : `${value.toLocaleString('en', { maximumSignificantDigits: 5 })} ${unit}`;
  const verdict = bar === null ? '' : holds ? 'holds' : 'DOES NOT HOLD';
  const { date, commit, machine } = figure.measured ?? {};
  const when = date && `measured ${date.slice(0, 10)} at ${commit} on ${machine}`;
  const others = stolen && `${(stolen * 100).toFixed(0)} % of the CPU time went to others`;
  const more = [when, others, note].filter(Boolean).join('; ');
  console.log(
    `${name.padEnd(36)} ${shown.padStart(20)}  ${(bar ?? '').padEnd(12)} ${verdict.padEnd(14)} ${more}`.trimEnd(),
  );
}
