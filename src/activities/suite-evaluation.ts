// A state on a suite, for runs and sweeps alike. Each (state, suite, task, sample) is played once ever, by whoever comes first; its
// random numbers come from the suite alone (R13).
import type { EvaluationResult, SuiteRecord } from '../spec/evaluation-records.js';
import { InvalidSpec } from '../spec/invalid-spec.js';
import { passRateOf } from '../spec/pass-rate.js';
import type { Digest, EpisodeRecord } from '../spec/records.js';
import { promptTooLong } from '../episode/episode-loop.js';
import { isPass } from '../rl/pass.js';
import {
  evaluationEpisodeKey,
  evaluationEpisodesFolder,
  evaluationResultKey,
  evaluationSuiteKey,
} from '../store/layout.js';
import { adoptOrCreate, readRecord } from '../store/records.js';
import { attemptEvidence } from './attempt-evidence.js';
import type { NodeDeps } from './node-deps.js';
import { fillSeats, type Seat } from './rollouts.js';
import type { RunData } from './run-data.js';
import { currentScope } from './scope.js';
import { projectTrajectories } from './trajectories.js';

/** A state by the run and step that load it, and what it is measured on. */
export interface SuiteOfState {
  run: string;
  step: number;
  state: Digest;
  suite: SuiteRecord;
  suiteDigest: Digest;
  /** Run whose tasks they are. */
  suiteOf: string;
}

/** What is there is adopted. `load` is asked for the run's data where something is missing. Throws `InvalidSpec` where no prompt fits. */
export async function evaluateSuite(
  deps: NodeDeps,
  what: SuiteOfState,
  load: () => Promise<RunData>,
): Promise<EvaluationResult> {
  const { store } = deps;
  const { run, step, state, suite, suiteDigest } = what;
  const started = performance.now();
  const resultKey = evaluationResultKey(state, suiteDigest);
  const existing = await readRecord(store, resultKey, 'evaluation');
  if (existing) return existing;
  await adoptOrCreate(store, evaluationSuiteKey(state, suiteDigest), 'suite', suite);
  const data = await load();
  const folder = evaluationEpisodesFolder(state, suiteDigest);
  const scope = currentScope();
  const episodes = await fillSeats(
    deps,
    {
      data,
      plan: suiteDigest,
      state,
      policyStep: step,
      sampling: suite.sampling,
      random: { seed: suite.seed, domain: 'eval', step: 0 },
      folder,
      seats: seatsOf(what, data),
      folded: null,
    },
    scope,
    attemptEvidence(store, run, Math.max(step, 0), scope, deps.life),
  );
  refuseWhereNoPromptFits(episodes, suite);
  const result = summarise(episodes, suite, suiteDigest, state);
  await projectTrajectories(store, data, step, suite, episodes, result);
  const seconds = (performance.now() - started) / 1000;
  const stored = await adoptOrCreate(store, resultKey, 'evaluation', {
    ...result,
    observed: { run, step, seconds, committed_at: new Date().toISOString(), metrics: {} },
  });
  return stored.record;
}

function seatsOf({ state, suite, suiteDigest, suiteOf }: SuiteOfState, data: RunData): Seat[] {
  return suite.tasks.flatMap(({ task_key, seed }, slot) => {
    const task = data.taskByKey.get(task_key);
    if (!task)
      throw new Error(`The suite names task ${task_key}, which the dataset of ${suiteOf} does not hold`);
    return Array.from({ length: suite.samples_per_task }, (_, sample): Seat => {
      const key = evaluationEpisodeKey(state, suiteDigest, slot, sample);
      return { key, slot, sample, task, seed };
    });
  });
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
    schema: 'longhaul.evaluation/2',
    state,
    suite: suiteDigest,
    suite_name: suite.name,
    pass_at_1: passRateOf(
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
            pass_at_1: passRateOf(part.passed, part.graded),
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
