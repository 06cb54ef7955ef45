// From a sweep's request to the record of what is measured. Evaluations are filed by the digest of that record and played once ever, so
// equal requests must give equal records: for runs and sweeps, under any name. A sweep's own name for a suite is for its tables alone.
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
import { isRunSuite, runSuites, type RunSuite } from '../spec/schedule.js';
import type { SuiteSpec, SweepSpec } from '../spec/sweep-spec.js';

/** The run that supplies the suites, and the tasks of its dataset, in the data's order. */
export interface SuiteSource {
  record: RunRecord;
  tasks: readonly Task[];
  /** Numerics of the engines that play them: `readNumerics`. */
  numerics: Numerics;
  /** Identities of the tasks' environments; empty until they are asked. */
  identities: EnvironmentIdentities;
}

/** Name of all suites that are not a run's own: the sweep's names change nothing that is measured. */
const sweepSuite = 'sweep';

/** Episodes of a state on one suite: a node has all of them open at once, and holds their transcripts. */
export const mostEpisodes = 20_000;

/** The suites of a sweep, in its order. Throws `InvalidSpec` if one has no task or too many episodes, or two of them are the same. */
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
        problem: `asks for the same tasks in the same way as "${same.label}"`,
        fix: 'leave one of them out: a state is evaluated on a suite once ever',
      });
    }
    suites.push({ label: suite.name, record, digest });
  }
  if (problems.length > 0) throw new InvalidSpec(problems, `sweep ${spec.name}`);
  return suites;
}

/** Environments of its tasks. */
export function environmentsOf({ tasks }: SuiteRecord): string[] {
  return [...new Set(tasks.map(({ env_key }) => env_key))].sort();
}

/** Held-out tasks in the data's order, as the run itself takes them. */
export function runSuiteOf(name: RunSuite, source: SuiteSource): SuiteRecord {
  const { final_eval_tasks, eval_tasks } = source.record.spec.data;
  const max_tasks = name === 'final' ? final_eval_tasks : eval_tasks;
  return suiteRecord(name, { name, split: 'held_out', max_tasks, samples: 1, temperature: 1 }, source);
}

/** A suite with the settings of a run's own suite is that suite. */
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
  // A task's seed depends on its place in its part of the data, so that a filter does not change it.
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

/** A run decides its own suites. */
function largeSuite({ name, tasks, samples_per_task }: SuiteRecord, path: string): SpecProblem | null {
  const episodes = tasks.length * samples_per_task;
  if (name !== sweepSuite || episodes <= mostEpisodes) return null;
  return {
    path,
    problem: `asks for ${tasks.length} tasks × ${samples_per_task} samples, ${episodes} episodes of each state; at most ${mostEpisodes} are played at once`,
    fix: 'lower samples or max_tasks, or make several suites of it by environments or difficulty',
  };
}

/** Names the filter that leaves nothing, and the existing values. */
function emptySuite(suite: SuiteSpec, { record, tasks }: SuiteSource, path: string): SpecProblem {
  const { split, environments, difficulty } = suite;
  const data = `${record.dataset.name} ${record.dataset.version}`;
  const part = tasks.filter((task) => task.split === split);
  if (part.length === 0)
    return { path: `${path}.split`, problem: `is ${split}, of which ${data} has no task`, fix: '' };
  const known = [...new Set(part.map(({ env_key }) => env_key))].sort();
  const unknown = environments?.filter((name) => !known.includes(name)) ?? [];
  if (environments !== undefined && unknown.length === environments.length) {
    const near = nearestName(unknown[0] ?? '', known);
    return {
      path: `${path}.environments`,
      problem: `leaves no task: of ${environments.join(' and ')} ${data} has no ${split} one`,
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
