// Turns a sweep's suites into records of what is measured. An evaluation is stored under the digest of this record and played only once, so
// equal requests must give equal records, in runs and sweeps alike. The sweep's own name for a suite appears only in its tables.
import { evaluationSampling } from '../rl/sampling.js';
import type { EnvironmentIdentities, SuiteRecord } from '../spec/records/evaluation-records.js';
import { InvalidSpec, type SpecProblem } from '../spec/invalid-spec.js';
import { nearestName } from '../base/nearest-name.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { Numerics } from '../spec/records/numerics.js';
import type { SweepSuiteEntry } from '../spec/records/sweep-record.js';
import type { Task } from '../spec/records/task.js';
import { hash32 } from '../rl/random.js';
import { recordDigest } from '../store/records/canonical.js';
import { evaluationPlay, isRunSuite, mostEpisodes, runSuites, type RunSuite } from '../spec/schedule.js';
import type { SuiteSpec, SweepSpec } from '../spec/sweep-spec.js';

/** The run that supplies the suites, and the tasks of its dataset in the data's order. */
export interface SuiteSource {
  record: RunRecord;
  tasks: readonly Task[];
  /** Numerics of the engines that play the suites, from `readNumerics`. */
  numerics: Numerics;
  /** Identities of the tasks' environments; empty until the environments have been asked. */
  identities: EnvironmentIdentities;
}

/** Recorded name of every suite that is not a run's own. Names in a sweep change nothing that is measured, so they must not be recorded. */
const sweepSuite = 'sweep';

/** A sweep's suites, in its order. Throws `InvalidSpec` if a suite has no task or too many episodes, or if two suites are the same. */
export function suitesOf(spec: SweepSpec, source: SuiteSource): SweepSuiteEntry[] {
  const problems: SpecProblem[] = [];
  const suites: SweepSuiteEntry[] = [];
  for (const [index, suite] of spec.suites.entries()) {
    const path = `suites[${index}]`;
    const record = isRunSuite(suite.name) ? runSuiteOf(suite.name, source) : suiteOf(suite, source);
    if (record.tasks.length === 0) problems.push(emptySuite(suite, source, path));
    const tooLarge = largeSuite(record, path);
    if (tooLarge !== null) problems.push(tooLarge);
    const digest = recordDigest(record);
    const same = suites.find((other) => other.digest === digest);
    if (same !== undefined && record.tasks.length > 0) {
      problems.push({
        path,
        problem: `asks for the same tasks with the same sampling as "${same.label}"`,
        fix: 'remove one of them: a state is evaluated only once on the same suite',
      });
    }
    suites.push({ label: suite.name, record, digest });
  }
  if (problems.length > 0) throw new InvalidSpec(problems, `sweep ${spec.name}`);
  return suites;
}

export function environmentsOf({ tasks }: SuiteRecord): string[] {
  return [...new Set(tasks.map(({ env_key }) => env_key))].sort();
}

/** A run's own suite: its held-out tasks in the data's order. */
export function runSuiteOf(name: RunSuite, source: SuiteSource): SuiteRecord {
  const { data, generator } = source.record.spec;
  const max_tasks = name === 'final' ? data.final_eval_tasks : data.eval_tasks;
  return suiteRecord(name, { name, split: 'held_out', max_tasks, ...evaluationPlay(generator) }, source);
}

/** The suite that is asked for, or the run's own suite if its settings are equal. */
function suiteOf(suite: SuiteSpec, source: SuiteSource): SuiteRecord {
  const record = suiteRecord(sweepSuite, suite, source);
  for (const name of runSuites) {
    const own = runSuiteOf(name, source);
    if (recordDigest({ ...record, name }) === recordDigest(own)) return own;
  }
  return record;
}

function suiteRecord(name: string, suite: SuiteSpec, source: SuiteSource): SuiteRecord {
  const { record, tasks, numerics, identities } = source;
  const seed = suite.seed ?? record.seed;
  // A task's seed depends on its position in its split, so the position is taken before any filter.
  const part = tasks.filter(({ split }) => split === suite.split).map((task, index) => ({ task, index }));
  const chosen = part.filter(({ task }) => passes(suite, task)).slice(0, suite.max_tasks);
  const envKeys = [...new Set(chosen.map(({ task }) => task.env_key))].sort();
  return {
    schema: 'longhaul.suite/2',
    name,
    environments: Object.fromEntries(
      envKeys.flatMap((name) => (identities[name] === undefined ? [] : [[name, identities[name]]])),
    ),
    tasks: chosen.map(({ task: { task_key, env_key, template }, index }) => ({
      task_key,
      env_key,
      template,
      seed: hash32(seed, index),
    })),
    samples_per_task: suite.samples,
    sampling: { ...evaluationSampling(record.spec.generator), temperature: suite.temperature },
    seed,
    digests: {
      tokenizer: record.tokenizer,
      chat_template: record.chat_template,
      tool_parser: record.tool_parser,
      dataset: record.dataset.digest,
    },
    numerics,
  };
}

function passes({ environments, difficulty }: SuiteSpec, task: Task): boolean {
  return (
    (environments === undefined || environments.includes(task.env_key)) &&
    (difficulty === undefined || difficulty.includes(task.difficulty))
  );
}

/** The problem with a suite that has too many episodes. A run's own suites are not limited. */
function largeSuite({ name, tasks, samples_per_task }: SuiteRecord, path: string): SpecProblem | null {
  const episodes = tasks.length * samples_per_task;
  if (name !== sweepSuite || episodes <= mostEpisodes) return null;
  return {
    path,
    problem: `asks for ${tasks.length} tasks × ${samples_per_task} samples, ${episodes} episodes of each state; a suite may have at most ${mostEpisodes}`,
    fix: 'lower samples or max_tasks, or split it into several suites by environments or difficulty',
  };
}

/** The problem with a suite without tasks: names the filter that leaves none, and the values that exist. */
function emptySuite(suite: SuiteSpec, { record, tasks }: SuiteSource, path: string): SpecProblem {
  const { split, environments, difficulty } = suite;
  const data = `${record.dataset.name} ${record.dataset.version}`;
  const part = tasks.filter((task) => task.split === split);
  if (part.length === 0)
    return { path: `${path}.split`, problem: `is ${split}, but ${data} has no task of that split`, fix: '' };
  const known = [...new Set(part.map(({ env_key }) => env_key))].sort();
  const unknown = environments?.filter((name) => !known.includes(name)) ?? [];
  if (environments !== undefined && unknown.length === environments.length) {
    const near = nearestName(unknown[0] ?? '', known);
    return {
      path: `${path}.environments`,
      problem: `leaves no task: ${data} has no ${split} task of ${environments.join(' and ')}`,
      fix: near === null ? `it has ${known.join(', ')}` : `did you mean ${near}?`,
    };
  }
  const left = part.filter(({ env_key }) => environments === undefined || environments.includes(env_key));
  const levels = [...new Set(left.map((task) => task.difficulty))].sort((a, b) => a - b);
  return {
    path: `${path}.difficulty`,
    problem: `leaves no task: none of the ${left.length} ${split} tasks ${environments === undefined ? '' : `of ${environments.join(' and ')} `}has difficulty ${(difficulty ?? []).join(' or ')}`,
    fix: `they have ${levels.join(', ')}`,
  };
}
