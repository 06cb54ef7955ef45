// Turns a sweep that a person wrote, as a file or a value, into the form that all other code uses.
import { InvalidSpec, refuseOtherKind, type SpecProblem } from '../spec/invalid-spec.js';
import { nearestName } from '../base/nearest-name.js';
import { readSpecValue } from '../spec/spec-input.js';
import { issueProblems } from '../spec/spec-issues.js';
import { cronProblem } from './cron-fields.js';

import { isRunSuite } from '../spec/schedule.js';
import {
  type CheckpointsSpec,
  isPattern,
  secondsIn,
  suitesAreOf,
  type SuiteSpec,
  type SweepScheduleSpec,
  type SweepSpec,
  sweepSpecSchema,
} from '../spec/sweep-spec.js';
import { differences } from '../store/records/canonical.js';

/** Checks a sweep and fills in all defaults; the result passes again unchanged. Throws one `InvalidSpec` with all problems. */
export function parseSweepSpec(input: unknown, context: { file?: string } = {}): SweepSpec {
  const where = context.file ?? 'the sweep';
  const result = sweepSpecSchema.safeParse(input);
  if (!result.success) {
    refuseOtherKind(input, 'sweep', where);
    throw new InvalidSpec(issueProblems(result.error.issues, sweepSpecSchema, input), where);
  }
  const problems = sweepProblems(result.data);
  if (problems.length > 0) throw new InvalidSpec(problems, where);
  return result.data;
}

/** Reads a YAML or JSON file. Throws `InvalidSpec` if it cannot be read or parsed, or is not valid. */
export async function readSweepFile(path: string): Promise<SweepSpec> {
  return parseSweepSpec(await readSpecValue(path), { file: path });
}

function sweepProblems(spec: SweepSpec): SpecProblem[] {
  return [
    ...spec.checkpoints.flatMap((entry, index) => selectionProblems(entry, `checkpoints[${index}]`)),
    ...spec.suites.flatMap((suite, index) => suiteProblems(suite, `suites[${index}]`)),
    ...overlappingNames(spec.suites),
    ...ownerProblems(spec),
    ...(spec.schedule ? scheduleProblems(spec.schedule) : []),
  ];
}

const selectors = ['steps', 'range', 'latest', 'best', 'every'] as const;

function selectionProblems(entry: CheckpointsSpec, path: string): SpecProblem[] {
  const given = selectors.filter((key) => entry[key] !== undefined);
  const problems: SpecProblem[] = [];
  if (given.length > 1) {
    const fix = 'keep one of them, and put the others into entries of their own with the same run';
    problems.push({ path, problem: `has ${given.join(' and ')} at once`, fix });
  }
  const { range } = entry;
  if (range?.to !== undefined && range.to < range.from) {
    const fix = 'give the smaller step as from';
    problems.push({
      path: `${path}.range`,
      problem: `ends at step ${range.to}, before it starts at step ${range.from}`,
      fix,
    });
  }
  const twice = (entry.steps ?? []).find((step, index, all) => all.indexOf(step) !== index);
  if (twice !== undefined)
    problems.push({ path: `${path}.steps`, problem: `names step ${twice} twice`, fix: 'name it once' });
  if (entry.steps !== undefined && isPattern(entry.run)) {
    const fix = 'name the run, or use range, latest, best or every';
    problems.push({
      path: `${path}.steps`,
      problem: `cannot be given for several runs ("${entry.run}")`,
      fix,
    });
  }
  return problems;
}

/** A run fixes the settings of its own suites; a sweep with other settings needs another name for the suite. */
function suiteProblems(suite: SuiteSpec, path: string): SpecProblem[] {
  const problems: SpecProblem[] = [];
  if (isRunSuite(suite.name)) {
    const own: Partial<Record<keyof SuiteSpec, unknown>> = { split: 'held_out', samples: 1, temperature: 1 };
    const changed = (Object.keys(suite) as (keyof SuiteSpec)[]).filter(
      (key) => key !== 'name' && suite[key] !== own[key],
    );
    for (const key of changed) {
      problems.push({
        path: `${path}.${key}`,
        problem: `cannot be set: "${suite.name}" is a suite of the runs themselves`,
        fix: `leave it out, or give the suite a name of its own, such as ${suite.name}-${key.replaceAll('_', '-')}`,
      });
    }
  }
  for (const key of ['environments', 'difficulty'] as const) {
    const values: readonly (string | number)[] = suite[key] ?? [];
    const twice = values.find((value, index) => values.indexOf(value) !== index);
    if (twice !== undefined)
      problems.push({ path: `${path}.${key}`, problem: `names ${twice} twice`, fix: 'name it once' });
  }
  return problems;
}

/** Names must differ by more than case: some disks, and some readers, do not distinguish case. */
function overlappingNames(suites: readonly SuiteSpec[]): SpecProblem[] {
  return suites.flatMap(({ name }, index) => {
    const first = suites.findIndex((other) => other.name.toLowerCase() === name.toLowerCase());
    if (first === index) return [];
    return [
      {
        path: `suites[${index}].name`,
        problem: `is "${name}", which suites[${first}] has already`,
        fix: 'give each suite its own name, or put both filters into one suite',
      },
    ];
  });
}

function ownerProblems(spec: SweepSpec): SpecProblem[] {
  const run = suitesAreOf(spec);
  if (!isPattern(run)) return [];
  return [
    {
      path: 'data_of',
      problem: `is missing: "${run}" may match several runs, and suites take data, seed and settings from one run`,
      fix: 'name that run in data_of, or a baseline',
    },
  ];
}

function scheduleProblems(schedule: SweepScheduleSpec): SpecProblem[] {
  const { cron, every, time_zone, jitter } = schedule;
  const problems: SpecProblem[] = [];
  const problem = (key: string, text: string, fix: string): void => {
    problems.push({ path: `schedule${key === '' ? '' : `.${key}`}`, problem: text, fix });
  };
  if ((cron === undefined) === (every === undefined)) {
    const [text, fix] =
      cron === undefined
        ? ['gives no time', 'give cron, such as "0 3 * * *", or every, such as "6h"']
        : ['has cron and every at once', 'keep one of them'];
    problem('', text, fix);
  }
  const zone = isTimeZone(time_zone) ? time_zone : null;
  if (zone === null) {
    const near = nearestZone(time_zone);
    problem(
      'time_zone',
      `is ${JSON.stringify(time_zone)}, which is not a time zone`,
      near === null ? 'name one as in Europe/Berlin, America/New_York or UTC' : `did you mean ${near}?`,
    );
  }
  if (cron !== undefined) {
    const text = cronProblem(cron, zone ?? 'UTC');
    if (text !== null) problem('cron', text, '');
  }
  if (every !== undefined && zone !== null && zone !== 'UTC')
    problem(
      'time_zone',
      'has no effect on every, which counts from 1970 in UTC',
      'leave it out, or use cron',
    );
  const [longest, interval] = [secondsIn(jitter ?? '0s'), secondsIn(every ?? '')];
  if (longest !== null && interval !== null && longest >= interval)
    problem('jitter', `is ${jitter}, which is not less than the ${every} between firings`, 'make it shorter');
  return problems;
}

function isTimeZone(name: string): boolean {
  try {
    // `Intl` accepts an offset such as +02:00 as a time zone; the server does not.
    return /^[A-Za-z]/.test(name) && new Intl.DateTimeFormat('en', { timeZone: name }) !== null;
  } catch {
    return false;
  }
}

/** The known zone with the same city: people often omit the area before it. */
function nearestZone(name: string): string | null {
  const zones = Intl.supportedValuesOf('timeZone');
  const city = name.split('/').at(-1) ?? name;
  const cities = zones.map((zone) => zone.split('/').at(-1) ?? zone);
  const near = nearestName(name, zones);
  if (near !== null) return near;
  const nearCity = nearestName(city, cities);
  return nearCity === null ? null : (zones[cities.indexOf(nearCity)] ?? null);
}

/** Throws `InvalidSpec` if `given` differs from `stored`. Only the firing times and the number of nodes may differ. */
export function refuseOtherSweep(sweep: string, stored: SweepSpec, given: SweepSpec): void {
  const found = differences(comparable(stored), comparable(given));
  if (found.length === 0) return;
  const problem = `${sweep} was started with another spec:\n${found.map((line) => `    ${line}`).join('\n')}`;
  const fix =
    'restore the file to continue the sweep, or start it under another id: that sweep reuses the finished evaluations too';
  throw new InvalidSpec([{ path: '', problem, fix }], `sweep ${given.name}`);
}

function comparable({ schedule: _schedule, parallel: _parallel, ...spec }: SweepSpec): unknown {
  return spec;
}
