// `npm run chaos`: a disturbed run must end with the same bits as an undisturbed one. `--kills N` kills processes at random moments.
// `--runs N` runs seeded schedules of all faults, a few runs at once. The last line is the verdict; exit code 1 on any difference or
// violation.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { repository } from '../support/repository.js';
import { type Calm, type CampaignOptions, runCampaign, runSeed } from './campaign.js';
import { CampaignRecord } from './campaign-record.js';
import { allFaults } from './faults/catalogue.js';
import { type Kill, killAtRandom } from './kills.js';
import { seededRandom } from './random.js';
import { runInProcess, sayThatItOnlyWaits } from './seed-process.js';
import { runTrial } from './trial.js';
import { problemsOf } from './checks/verdict.js';
import { readSpecFile } from '../../src/spec/spec-input.js';
import type { RunSpec } from '../../src/spec/run-spec.js';

const program = new Command('npm run chaos --')
  .description(
    'Disturbs runs with faults and compares each with one that nobody touched; exit 1 on any difference or violation',
  )
  .helpOption('-h, --help', 'show this')
  .option(
    '--kills <n>',
    'one run, with so many processes killed at random moments (the default, with 5)',
    wholeNumber,
  )
  .addOption(
    new Option('--runs <n>', 'so many runs, each under a seeded schedule of all faults')
      .argParser(atLeastOne)
      .conflicts('kills'),
  )
  .option('--seed <n>', 'of the schedules; of --runs the first one (default: 1)', wholeNumber)
  .option('--faults <names>', 'only faults whose names contain one of these, divided by commas')
  .option('--list', 'name all faults, and what each does')
  .option('--full', 'with --runs: longer runs, outages of up to a minute')
  .option('--record', 'with --runs and --full: add them to the recorded campaign; with --seed, begin another')
  .option('--at-once <n>', 'with --runs: so many beside each other', atLeastOne)
  .option('--preset <file>', 'the run spec (default: presets/tiny.yaml)')
  .option('--keep', 'leave the folders of all runs')
  .option('--json', 'print what was found as JSON')
  .addOption(new Option('--against <file>', 'of a process for one seed: the undisturbed run').hideHelp())
  .addOption(new Option('--outcome <file>', 'where it is to tell what became of its own').hideHelp())
  .allowExcessArguments(false)
  .showHelpAfterError('`--help` lists the options.')
  .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : 2))
  .parse();
const values = program.opts<{
  kills?: number;
  runs?: number;
  seed?: number;
  faults?: string;
  list?: boolean;
  full?: boolean;
  record?: boolean;
  atOnce?: number;
  preset?: string;
  keep?: boolean;
  json?: boolean;
  against?: string;
  outcome?: string;
}>();

/** Number of faults in a run of a campaign, and the longest duration of a fault. */
const strikes = 4;
const outageMs = values.full ? 60_000 : 5_000;
/** A run that waits for the end of an outage or a restart leaves the processors to other runs. This many runs keep two cores busy. */
const runsAtOnce = values.full ? 6 : 3;

const seed = values.seed ?? 1;
const keep = values.keep ?? false;
const tiny = await readSpecFile(values.preset ?? join(repository, 'presets/tiny.yaml')).catch(
  (error: Error) => refuse(error.message),
);
const log = (message: string): void => {
  if (!values.json) console.log(message);
};

/** An interruption must stop everything that the campaign has started. */
const interruption = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interruption.abort());

if (values.list) for (const { name, does, undone } of allFaults) console.log(`${name}: ${does}; ${undone}`);
else {
  const ran = values.runs === undefined ? killingRun(values.kills ?? 5) : campaign(values.runs);
  await ran.catch((error: unknown) => {
    if (!interruption.signal.aborted) throw error;
    console.error('interrupted: no verdict');
    process.exitCode = 130;
  });
}

async function killingRun(kills: number): Promise<void> {
  const spec = longerBy(4 * kills, { ...tiny, name: `chaos-${seed}`, seed });
  const shared = { spec, keep, signal: interruption.signal, log };
  log(`undisturbed run, seed ${seed}`);
  const calm = await runTrial<Kill>(shared);
  log(
    `  ${calm.chain.steps - 1} steps in ${calm.seconds.toFixed(1)} s, final state ${calm.chain.finalState}`,
  );
  log(`the same run with ${kills} kills`);
  const random = seededRandom(seed * 7919 + kills);
  const longestDelayMs = Math.max(200, (2000 * calm.seconds) / calm.chain.steps);
  const troubled = await runTrial<Kill>({
    ...shared,
    disturb: (trial) => killAtRandom(trial, { kills, random, longestDelayMs, log }),
  });
  log(
    `  ${troubled.chain.steps - 1} steps in ${troubled.seconds.toFixed(1)} s, final state ${troubled.chain.finalState}`,
  );
  const problems = problemsOf(calm, troubled, kills);
  for (const problem of problems) log(`  ${problem}`);
  const { disturbances } = troubled;
  if (values.json)
    console.log(
      JSON.stringify({ kills: disturbances, calm: calm.chain, troubled: troubled.chain, problems }),
    );
  verdict(
    problems.length === 0,
    `equal: ${disturbances.length} kills, state ${calm.chain.finalState}, 0 violations`,
    `NOT equal or not sound: ${problems.length} problems after ${disturbances.length} kills`,
  );
}

async function campaign(runs: number): Promise<void> {
  const same = (['faults', 'preset'] as const)
    .flatMap((flag) => (values[flag] === undefined ? [] : [`--${flag}`, values[flag]]))
    .concat(values.full ? ['--full'] : []);
  const options: CampaignOptions = {
    spec: longerBy((values.full ? 4 : 2) * strikes, { ...tiny, name: 'chaos' }),
    faults: chosenFaults(),
    strikes,
    longestOutageMs: outageMs,
    keep,
    signal: interruption.signal,
    repeat: (one) => ['npm run chaos -- --runs 1', `--seed ${one}`, ...same].join(' '),
    log,
  };
  if (values.against !== undefined && values.outcome !== undefined) {
    const calm = JSON.parse(readFileSync(values.against, 'utf8')) as Calm;
    writeFileSync(values.outcome, JSON.stringify(await runSeed(options, calm, seed, sayThatItOnlyWaits)));
    return;
  }
  const record = values.record ? openRecord() : null;
  const first = values.seed === undefined ? (record?.next ?? seed) : seed;
  const {
    finalState,
    runs: done,
    leftOut,
  } = await runCampaign({
    leaveOut: record === null,
    ...options,
    seeds: Array.from({ length: runs }, (_, index) => first + index),
    atOnce: values.atOnce ?? runsAtOnce,
    run: (one, calm, onlyWaits) =>
      runInProcess(one, calm, {
        ...{ onlyWaits, log, signal: interruption.signal },
        flags: [...same, ...(keep ? ['--keep'] : [])],
      }),
    // The result of an interrupted run means nothing.
    ended: (run) => (interruption.signal.aborted ? undefined : record?.add(run)),
  });
  if (values.json) console.log(JSON.stringify({ finalState, runs: done, leftOut }));
  const faults = done.reduce((sum, { disturbances }) => sum + disturbances.length, 0);
  const problems = done.reduce((sum, run) => sum + run.problems.length, 0);
  const bad = done.filter((run) => run.problems.length > 0).map((run) => run.seed);
  const without = leftOut.length === 0 ? '' : `, ${leftOut.length} kinds of fault left out`;
  const summed = record === null ? '' : `; recorded: ${record.summary()}`;
  verdict(
    problems === 0,
    `equal: ${done.length} runs, ${faults} faults, state ${finalState}, 0 violations${without}${summed}`,
    `NOT equal or not sound: ${problems} problems in seeds ${bad.join(', ')} of ${done.length} runs${without}${summed}`,
  );
}

/** Opens the record of the campaign that this batch belongs to. */
function openRecord(): CampaignRecord {
  if (values.full !== true || values.faults !== undefined || values.preset !== undefined)
    refuse('--record is for --full runs over all faults on presets/tiny.yaml');
  try {
    return CampaignRecord.open(values.seed === undefined ? null : seed);
  } catch (error) {
    return refuse(`--record: ${(error as Error).message}`);
  }
}

/** More faults need a longer run, because every fault must happen while the run is open. */
function longerBy(steps: number, spec: RunSpec): RunSpec {
  const { trainer } = spec;
  return { ...spec, trainer: { ...trainer, max_training_steps: trainer.max_training_steps + steps } };
}

function chosenFaults(): typeof allFaults {
  if (values.faults === undefined) return allFaults;
  const parts = values.faults.split(',');
  const chosen = allFaults.filter(({ name }) => parts.some((part) => part !== '' && name.includes(part)));
  if (chosen.length === 0)
    refuse(`--faults: none has "${values.faults}" in its name; \`npm run chaos -- --list\` names all`);
  return chosen;
}

function verdict(sound: boolean, well: string, ill: string): void {
  console.log(sound ? well : ill);
  process.exitCode = sound ? 0 : 1;
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isInteger(value) && value >= 0) return value;
  throw new InvalidArgumentError('It takes a whole number ≥ 0.');
}

function atLeastOne(text: string): number {
  const value = wholeNumber(text);
  if (value > 0) return value;
  throw new InvalidArgumentError('It takes a whole number ≥ 1.');
}

function refuse(problem: string): never {
  console.error(problem);
  process.exit(2);
}
