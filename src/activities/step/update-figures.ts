// The figures of an update: those in its record, and those that the workflow shows. No state depends on a figure.
import { itemOf } from '../../engine/tinker/sent-tokens.js';
import type { UpdateResult } from '../../engine/policy-engine.js';
import { lackOfGrades, maxUnknownShare, tooFewGraded } from '../../rl/grades.js';
import { episodeFigures, policyMetrics } from '../../rl/metrics.js';
import { metricsOfServed, spentBy } from '../../rl/spending.js';
import type { ServedTokens } from '../../spec/budget.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { BatchIdentity, UpdateRecord } from '../../spec/records/update.js';
import { withWaves } from '../../spec/records/wave.js';
import { readStepEpisodes } from '../../store/runs/episodes.js';
import type { RunData } from '../../data/run-data.js';
import type { CommittedStep } from '../contracts.js';
import type { NodeDeps } from '../node-deps.js';
import type { StepEnvironments } from './step-environments.js';
import { wavesOf } from './waves.js';

/** The tokens that an episode's turns read (`prefill`) and sampled. */
export interface EpisodeTokens extends Pick<ServedTokens, 'prefill' | 'sample'> {
  slot: number;
  sampleIndex: number;
}

export function tokensOf({ slot, sample, turns }: EpisodeRecord): EpisodeTokens {
  return {
    ...{ slot, sampleIndex: sample },
    prefill: turns.reduce((sum, { start }) => sum + start, 0),
    sample: turns.reduce((sum, { start, end }) => sum + end - start, 0),
  };
}

interface ComputedStep {
  plan: PlanRecord;
  data: RunData;
  /** The batch's identity. */
  identity: BatchIdentity;
  /** The episodes that the step has sampled itself. */
  episodes: readonly EpisodeTokens[];
  environments: Promise<StepEnvironments>;
  /** Seconds in which other nodes played this step's episodes. */
  elsewhere: number;
}

/** The `observed` part of the record of an update that is about to be committed. */
export async function observedUpdate(
  deps: NodeDeps,
  step: ComputedStep,
  { metrics, served }: Pick<UpdateResult, 'metrics' | 'served'>,
  computedMs: number,
): Promise<UpdateRecord['observed']> {
  const { plan, identity } = step;
  const { build, incarnation, gpu } = await deps.holder.engine.info();
  const environments = await step.environments;
  const committed_at = new Date().toISOString();
  return {
    metrics: {
      ...episodeFigures(playedPlan(step), identity),
      ...policyMetrics(metrics),
      'policy/policy_lr': plan.optimizer.learning_rates.at(-1) ?? 0,
      ...sentFigures(deps, step, committed_at),
    },
    timings_ms: timingsOf(deps, step, computedMs),
    engine: { build, incarnation },
    ...(gpu === null ? {} : { device: gpu.name }),
    ...(Object.keys(environments).length === 0 ? {} : { environments }),
    ...(served ? { served } : {}),
    committed_at,
    worker: deps.life.identity,
  };
}

/** The plan with the slots of its waves. */
function playedPlan({ plan, data, identity }: ComputedStep): PlanRecord {
  if (plan.kind !== 'grpo' || !plan.dynamic_sampling) return plan;
  return withWaves(plan, wavesOf(plan, identity.outcomes, data));
}

/**
 * Tokens sent to a Tinker server: all that this process has sent for the run since the last record. An episode counts at least with its own
 * tokens, because a process that died may have sent them. Empty on a node with its own engine.
 */
function sentFigures(
  { sent }: Pick<NodeDeps, 'sent'>,
  { plan: { run, step }, episodes }: ComputedStep,
  at: string,
): Record<string, number> {
  if (!sent) return {};
  const recorded = new Map<string, Partial<ServedTokens>>(
    episodes.map(({ slot, sampleIndex, prefill, sample }) => [
      itemOf.episode(step, slot, sampleIndex),
      { prefill, sample },
    ]),
  );
  return metricsOfServed(sent.offer(run, at, recorded));
}

/** docs/records.md describes each timing under `longhaul.update`. */
function timingsOf(
  { lastCommits, checkpointStalls, meter }: NodeDeps,
  { plan: { run, step }, elsewhere }: ComputedStep,
  computedMs: number,
): Record<string, number> {
  const before = lastCommits.get(run);
  const stall = checkpointStalls.get(run);
  const timings = {
    policy_train: computedMs,
    ...(before?.step === step - 1
      ? { step: performance.now() - before.at, in_flight: meter.totalMs - before.busyMs }
      : {}),
    ...(stall?.step === step ? { checkpoint_stall: stall.ms } : {}),
    ...(elsewhere ? { elsewhere: 1000 * elsewhere } : {}),
  };
  return Object.fromEntries(Object.entries(timings).map(([name, ms]) => [name, Math.round(ms * 10) / 10]));
}

/**
 * The metrics that a step returns to the workflow. A step can have hundreds, one set per environment, and each would stay in the history.
 */
const shownMetrics = [
  'reward/avg_raw_reward',
  'policy/final_loss',
  'policy/grad_norm',
  'policy/policy_lr',
  'policy/policy_kl',
];

/** What the workflow learns of a committed step. */
export async function committedStep(
  { store }: Pick<NodeDeps, 'store'>,
  { record: run }: RunData,
  update: UpdateRecord,
): Promise<CommittedStep> {
  const { step, kind, state, applied, outcomes } = update.identity;
  const values = outcomes.flat();
  const graded = values.filter((value) => value !== null).length;
  const share = maxUnknownShare(run);
  // Episodes are read only if grades are lacking. A rebased step has no episodes of its own.
  const ungraded = tooFewGraded(graded, values.length - graded, share)
    ? lackOfGrades(await readStepEpisodes(store, update.identity.run, step), share)
    : null;
  return {
    ...{ step, kind, state, applied: applied === true, reason: applied === true ? null : applied.reason },
    spent: spentBy(update),
    metrics: Object.fromEntries(
      Object.entries(update.observed.metrics).filter(([name]) => shownMetrics.includes(name)),
    ),
    ...(ungraded === null ? {} : { ungraded: `step ${step} of ${run.run}: ${ungraded}` }),
  };
}
