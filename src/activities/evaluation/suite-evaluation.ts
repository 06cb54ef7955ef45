// Evaluates a state on a suite, for runs and sweeps alike. Each (state, suite, task, sample) is played only once, by the first run or sweep
// that needs it; its random numbers depend only on the suite (R13).
import type { EvaluationResult, SuiteRecord } from '../../spec/records/evaluation-records.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import { type Counted, knownPassAtK, type PassRates, passRateOf } from '../../spec/pass-rate.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { promptTooLong } from '../../episode/episode-loop.js';
import { rewardFigures } from '../../rl/metrics.js';
import { isPass } from '../../rl/episode-reward.js';
import {
  evaluationEpisodeKey,
  evaluationEpisodesFolder,
  evaluationResultKey,
  evaluationSuiteKey,
} from '../../store/record-keys.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import {
  newestRound,
  roundBefore,
  roundOf,
  type SuiteRound,
} from '../../store/evaluations/evaluation-rounds.js';
import { inParallel } from '../../base/in-parallel.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { adoptOrCreate, readRecord } from '../../store/records/records.js';
import { attemptEvidence } from '../attempt/attempt-evidence.js';
import type { NodeDeps } from '../node-deps.js';
import { lackOfGrades, maxUnknownShare, NothingGraded } from '../../rl/grades.js';
import { requireEpisode } from '../step/episode-record.js';
import { completeRollouts } from '../step/complete-rollouts.js';
import type { Rollout } from '../step/play-rollouts.js';
import type { RunData } from '../../data/run-data.js';
import { currentScope } from '../attempt/scope.js';
import { projectTrajectories } from './trajectories.js';

/** A state, named by the run and step that load it, and the suite to play. */
interface SuiteOfState {
  run: string;
  step: number;
  state: Digest;
  /** The suite of the first round. */
  suite: SuiteRecord;
  /** The run that supplies the tasks. */
  suiteOf: string;
  environments: readonly EnvironmentSpec[];
  /** True if the run evaluates its own state. It then plays the episodes again whose outcomes another run left unknown. */
  isOwn: boolean;
}

interface EvaluatedSuite {
  result: EvaluationResult;
  /** The round that the result belongs to. */
  suite: SuiteRecord;
  /** Null if the result was stored already. */
  episodes: EpisodeRecord[] | null;
}

/**
 * Reuses what is stored: a complete result, or the graded episodes of a round with unknown outcomes. `load` reads the run's data if
 * something must be played. Throws `InvalidSpec` if no prompt fits, and `NothingGraded` if too few outcomes are graded.
 */
export async function evaluateSuite(
  deps: NodeDeps,
  what: SuiteOfState,
  load: () => Promise<RunData>,
): Promise<EvaluatedSuite> {
  const { store } = deps;
  const { state } = what;
  for (let round = await newestRound(store, state, what.suite); ; round = roundOf(what.suite, round.n + 1)) {
    const existing = await readRecord(store, evaluationResultKey(state, round.digest), 'evaluation');
    if (existing && isAdopted(existing, what))
      return { result: existing, suite: round.suite, episodes: null };
    const data = await load();
    if (existing === null && !(await isSpent(store, what, round, data)))
      return playRound(deps, what, round, data);
  }
}

function isAdopted({ unknown, observed }: EvaluationResult, { isOwn, run, step }: SuiteOfState): boolean {
  const isOurs = observed.run === run && observed.step === step;
  return unknown === 0 || !isOwn || isOurs;
}

/**
 * True if another execution played all episodes of the round and failed with `NothingGraded`; the caller then starts another round. If this
 * execution played the round and only its answer was lost, a retry plays nothing and gives the same answer.
 */
async function isSpent(
  store: ObjectStore,
  what: SuiteOfState,
  { digest }: SuiteRound,
  data: RunData,
): Promise<boolean> {
  const names = new Set(await store.listFolder(evaluationEpisodesFolder(what.state, digest)));
  const keys = rolloutsOf(what, digest, data).map(({ key }) => key);
  if (!keys.every((key) => names.has(key.slice(key.lastIndexOf('/') + 1)))) return false;
  const source = { plan: digest, state: what.state };
  const episodes = await inParallel(keys, (key) => requireEpisode(store, key, source));
  const { execution } = currentScope();
  if (episodes.some(({ observed }) => observed.execution === execution)) return false;
  return lackOfGrades(episodes, maxUnknownShare(data.record)) !== null;
}

async function playRound(
  deps: NodeDeps,
  what: SuiteOfState,
  round: SuiteRound,
  data: RunData,
): Promise<EvaluatedSuite> {
  const { store } = deps;
  const { run, step, state, environments } = what;
  const { suite, digest } = round;
  const started = performance.now();
  await adoptOrCreate(store, evaluationSuiteKey(state, digest), 'suite', suite);
  const rollouts = rolloutsOf(what, digest, data);
  await takeGraded(store, what, round, rollouts);
  const scope = currentScope();
  const episodes = await completeRollouts(
    deps,
    {
      data,
      plan: digest,
      state,
      policyStep: step,
      reader: what.isOwn ? 'run' : 'visitor',
      sampling: suite.sampling,
      random: { seed: suite.seed, domain: 'eval', step: 0 },
      folder: evaluationEpisodesFolder(state, digest),
      rollouts,
      environments,
    },
    scope,
    attemptEvidence(store, run, Math.max(step, 0), scope, deps.life),
  );
  refuseWhereNoPromptFits(episodes, suite);
  const lack = lackOfGrades(episodes, maxUnknownShare(data.record));
  if (lack !== null) throw new NothingGraded(`evaluation ${suite.name} of step ${step} of ${run}: ${lack}`);
  const result = summarise(episodes, suite, digest, state);
  await projectTrajectories(store, data, step, suite, episodes, result);
  const seconds = (performance.now() - started) / 1000;
  const stored = await adoptOrCreate(store, evaluationResultKey(state, digest), 'evaluation', {
    ...result,
    observed: { run, step, seconds, committed_at: new Date().toISOString(), metrics: {} },
  });
  return { result: stored.record, suite, episodes };
}

/** Copies the graded episodes of the previous round into this round, under this round's suite. */
async function takeGraded(
  store: ObjectStore,
  { state }: SuiteOfState,
  { suite, digest }: SuiteRound,
  rollouts: readonly Rollout[],
): Promise<void> {
  const before = roundBefore(suite);
  if (before === null) return;
  await inParallel(rollouts, async ({ key, slot, sample }) => {
    const known = evaluationEpisodeKey(state, before.digest, slot, sample);
    const episode = await readRecord(store, known, 'episode');
    if (episode?.outcome.status !== 'graded') return;
    await adoptOrCreate(store, key, 'episode', { ...episode, plan: digest });
  });
}

function rolloutsOf({ state, suite, suiteOf }: SuiteOfState, digest: Digest, data: RunData): Rollout[] {
  return suite.tasks.flatMap(({ task_key, seed }, slot) => {
    const task = data.taskByKey.get(task_key);
    if (!task) throw new Error(`The suite names task ${task_key}, which is not in the dataset of ${suiteOf}`);
    return Array.from({ length: suite.samples_per_task }, (_, sample): Rollout => {
      const key = evaluationEpisodeKey(state, digest, slot, sample);
      return { key, slot, sample, task, seed };
    });
  });
}

/** A single task whose prompt is too long has an unknown outcome. But if no prompt fits, further training would be useless. */
function refuseWhereNoPromptFits(episodes: readonly EpisodeRecord[], { sampling }: SuiteRecord): void {
  const isTooLong = ({ outcome }: EpisodeRecord): boolean =>
    outcome.status === 'unknown' && outcome.reason === promptTooLong;
  if (!episodes.every(isTooLong)) return;
  throw new InvalidSpec([
    {
      path: 'generator.max_input_length',
      problem:
        `no prompt fits into max_input_length (${sampling.max_input_length} tokens) and leaves room in ` +
        `max_sequence_length ${sampling.max_sequence_length}`,
      fix: 'raise both in a run with a new name, or use shorter tasks or fewer tools',
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

/**
 * pass@1 is the share of passes among graded episodes; a suite with several samples a task also has pass@k. Unknown outcomes are counted but
 * not scored.
 */
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
  const several = suite.samples_per_task > 1;
  const ofSamples = (part: readonly EpisodeRecord[]): Omit<PassRates, 'pass_at_1'> =>
    several ? samplesFigures(part, suite.samples_per_task) : {};
  return {
    schema: 'longhaul.evaluation/3',
    state,
    suite: suiteDigest,
    suite_name: suite.name,
    pass_at_1: passRateOf(
      sum((part) => part.passed),
      sum((part) => part.graded),
    ),
    graded: sum((part) => part.graded),
    unknown: sum((part) => part.unknown),
    ...(several ? { samples_per_task: suite.samples_per_task } : {}),
    ...ofSamples(episodes),
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
            ...ofSamples(episodes.filter(({ env_key }) => env_key === name)),
          },
        ];
      }),
    ),
    templates,
  };
}

/** pass@k and pass@n of some tasks, over their graded samples. */
function samplesFigures(
  episodes: readonly EpisodeRecord[],
  samples: number,
): Required<Omit<PassRates, 'pass_at_1'>> {
  const rewards = new Map<number, number[]>();
  for (const { slot, outcome } of episodes)
    if (outcome.status === 'graded') rewards.set(slot, [...(rewards.get(slot) ?? []), outcome.value]);
  const tasks = [...rewards.values()];
  const counted = tasks.map((values): Counted => ({
    passed: values.filter(isPass).length,
    graded: values.length,
  }));
  return {
    pass_at_k: knownPassAtK(counted, samples),
    pass_at_n: rewardFigures(tasks.map((values) => ({ env: '', values }))).pass_at_n,
  };
}
