// evaluateState: a state on a suite of held-out tasks. Each (state, suite, task, sample) is played once ever, by
// whichever run or sweep comes first; its random numbers come from the suite alone (R13).
import type { EvaluatedState, StepReference } from './contracts.js';
import { attemptEvidence } from './attempt-evidence.js';
import type { NodeDeps } from './node-deps.js';
import { fillSeats, type Seat } from './rollouts.js';
import type { RunData } from './run-data.js';
import { currentScope } from './scope.js';
import type { EvaluationResult, SuiteRecord } from '../spec/evaluation-records.js';
import type { Digest, EpisodeRecord, Numerics } from '../spec/records.js';
import { evaluationSampling } from './sampling.js';
import { projectTrajectories } from './trajectories.js';
import { promptTooLong } from '../episode/episode-loop.js';
import { isPass } from '../rl/pass.js';
import { hash32 } from '../rl/random.js';
import { InvalidSpec } from '../spec/invalid-spec.js';
import { recordDigest } from '../store/canonical.js';
import {
  evaluationEpisodeKey,
  evaluationEpisodesFolder,
  evaluationResultKey,
  evaluationSuiteKey,
} from '../store/layout.js';
import { checkOwner } from '../store/owners.js';
import { adoptOrCreate, readRecord } from '../store/records.js';
import { readNumerics, readState } from '../store/run-records.js';

export async function evaluateState(
  deps: NodeDeps,
  input: StepReference & { suite: 'interval' | 'final' },
): Promise<EvaluatedState> {
  const { store } = deps;
  const { run, step } = input;
  await checkOwner(store, run, input.owner);
  const started = performance.now();
  const data = await deps.runs.get(run);
  const suite = suiteOf(data, input.suite, await readNumerics(store, run));
  const suiteDigest = recordDigest(suite);
  const state = await readState(store, run, step);
  const resultKey = evaluationResultKey(state, suiteDigest);
  const existing = await readRecord(store, resultKey, 'evaluation');
  if (existing) return answer(existing);
  await adoptOrCreate(store, evaluationSuiteKey(state, suiteDigest), 'suite', suite);
  const episodes = await playSuite(deps, data, { run, step }, suite, suiteDigest, state);
  refuseWhereNoPromptFits(episodes, suite);
  const result = summarise(episodes, suite, suiteDigest, state);
  await projectTrajectories(store, data, step, suite, episodes, result);
  const seconds = (performance.now() - started) / 1000;
  const stored = await adoptOrCreate(store, resultKey, 'evaluation', {
    ...result,
    observed: { run, step, seconds, committed_at: new Date().toISOString(), metrics: {} },
  });
  return answer(stored.record);
}

/** Held-out tasks in the data's order, so that `interval` is a part of `final`. */
function suiteOf(data: RunData, name: 'interval' | 'final', numerics: Numerics): SuiteRecord {
  const { record } = data;
  const size = name === 'final' ? record.spec.data.final_eval_tasks : record.spec.data.eval_tasks;
  const tasks = data.tasks.filter((task) => task.split === 'held_out').slice(0, size);
  return {
    schema: 'longhaul.suite/1',
    name,
    tasks: tasks.map(({ task_key, env_key, template }, index) => ({
      task_key,
      env_key,
      template,
      seed: hash32(record.seed, index),
    })),
    samples_per_task: 1,
    sampling: evaluationSampling(record.spec.generator),
    seed: record.seed,
    digests: {
      tokenizer: record.tokenizer,
      chat_template: record.chat_template,
      tool_parser: record.tool_parser,
      dataset: record.dataset.digest,
    },
    numerics,
  };
}

async function playSuite(
  deps: NodeDeps,
  data: RunData,
  { run, step }: { run: string; step: number },
  suite: SuiteRecord,
  suiteDigest: Digest,
  state: Digest,
): Promise<EpisodeRecord[]> {
  const { store } = deps;
  const seats: Seat[] = [];
  for (const [slot, { task_key, seed }] of suite.tasks.entries()) {
    const task = data.taskByKey.get(task_key);
    if (!task) throw new Error(`The suite names task ${task_key}, which the dataset of ${run} does not hold`);
    for (let sample = 0; sample < suite.samples_per_task; sample++) {
      seats.push({ key: evaluationEpisodeKey(state, suiteDigest, slot, sample), slot, sample, task, seed });
    }
  }
  const scope = currentScope();
  return fillSeats(
    deps,
    {
      data,
      plan: suiteDigest,
      state,
      policyStep: step,
      sampling: suite.sampling,
      random: { seed: suite.seed, domain: 'eval', step: 0 },
      folder: evaluationEpisodesFolder(state, suiteDigest),
      seats,
    },
    scope,
    attemptEvidence(store, run, Math.max(step, 0), scope, deps.life),
  );
}

/** One long task among many is an unknown outcome; where no task can be played, training could only go on in vain. */
function refuseWhereNoPromptFits(episodes: readonly EpisodeRecord[], { sampling }: SuiteRecord): void {
  const isTooLong = ({ outcome }: EpisodeRecord): boolean =>
    outcome.status === 'unknown' && outcome.reason === promptTooLong;
  if (!episodes.every(isTooLong)) return;
  throw new InvalidSpec([
    {
      path: 'generator.max_input_length',
      problem:
        `no task has a prompt that fits into ${sampling.max_input_length} tokens and leaves room in ` +
        `max_sequence_length ${sampling.max_sequence_length}`,
      mend: 'raise both under a new name, or bring shorter tasks or fewer tools',
    },
  ]);
}

type Totals = {
  graded: number;
  passed: number;
  unknown: number;
  turns: number;
  calls: number;
  errors: number;
};

/** pass@1 = share of passes among graded episodes; unknown outcomes are counted, never scored. */
export function summarise(
  episodes: EpisodeRecord[],
  suite: SuiteRecord,
  suiteDigest: Digest,
  state: Digest,
): Omit<EvaluationResult, 'observed'> {
  const environments = new Map<string, Totals>();
  const templates: Record<string, { passed: number; graded: number }> = {};
  for (const episode of episodes) {
    const totals = environments.get(episode.env_key) ?? {
      graded: 0,
      passed: 0,
      unknown: 0,
      turns: 0,
      calls: 0,
      errors: 0,
    };
    environments.set(episode.env_key, totals);
    totals.turns += episode.metrics.turns;
    totals.calls += episode.metrics.tool_calls;
    totals.errors += episode.metrics.tool_errors;
    if (episode.outcome.status === 'unknown') {
      totals.unknown += 1;
      continue;
    }
    const passed = Number(isPass(episode.outcome.value));
    totals.graded += 1;
    totals.passed += passed;
    const template = (templates[suite.tasks[episode.slot]?.template ?? episode.env_key] ??= {
      passed: 0,
      graded: 0,
    });
    template.graded += 1;
    template.passed += passed;
  }
  const all = [...environments.values()];
  const sum = (of: (totals: Totals) => number): number => all.reduce((total, part) => total + of(part), 0);
  const mean = (total: number, count: number): number => (count === 0 ? 0 : total / count);
  return {
    schema: 'longhaul.evaluation/1',
    state,
    suite: suiteDigest,
    suite_name: suite.name,
    pass_at_1: mean(
      sum((part) => part.passed),
      sum((part) => part.graded),
    ),
    graded: sum((part) => part.graded),
    unknown: sum((part) => part.unknown),
    environments: Object.fromEntries(
      [...environments].sort().map(([name, part]) => {
        const episodesOf = part.graded + part.unknown;
        return [
          name,
          {
            pass_at_1: mean(part.passed, part.graded),
            graded: part.graded,
            unknown: part.unknown,
            mean_turns: mean(part.turns, episodesOf),
            mean_tool_calls: mean(part.calls, episodesOf),
            tool_errors: part.errors,
          },
        ];
      }),
    ),
    templates,
  };
}

function answer({ state, suite, suite_name, pass_at_1, graded, unknown }: EvaluationResult): EvaluatedState {
  return { state, suite, suite_name, pass_at_1, graded, unknown };
}
