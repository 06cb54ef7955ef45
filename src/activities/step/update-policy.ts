// updatePolicy (R10–R12): plan and episodes → batch → state n. The record is first; the engine's memory is second;
// recomputing is last.
import { currentAccount, type WorkUnit } from '../attempt/attempt-account.js';
import type { CommittedStep, NoSignal, StepFaults, StepReference } from '../contracts.js';
import { attemptEvidence } from '../attempt/attempt-evidence.js';
import { lackOfGrades, maxUnknownShare, tooFewGraded } from '../../rl/grades.js';
import type { LastCommit, NodeDeps } from '../node-deps.js';
import { currentScope } from '../attempt/scope.js';
import { sealBatch } from './seal-batch.js';
import { stepMetrics } from '../../rl/metrics.js';
import { span } from '../../base/spans.js';
import { type Provenance, provenances } from '../../policy/state-restorer.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { UpdateProgress, UpdateResult } from '../../engine/policy-engine.js';
import type { BatchIdentity, UpdateRecord } from '../../spec/records/update.js';
import type { Digest } from '../../spec/records/parts.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import { lastWarmStep } from '../../spec/warm-start.js';
import { stepIdOf } from '../../store/records/canonical.js';
import { readStepEpisodes } from '../../store/runs/episodes.js';
import { attemptsFolder, updateKey } from '../../store/objects/layout.js';
import {
  asOf,
  type FaultFigures,
  faultsIn,
  figuresOf,
  plusFigures,
  readStepAttempts,
  uncounted,
} from '../../store/runs/fault-figures.js';
import { checkOwner } from '../../store/runs/owners.js';
import { checkRoots } from '../../store/runs/plan-roots.js';
import { recordFunction } from '../../store/records/records.js';
import { readPlan, readUpdateIfAny } from '../../store/runs/run-records.js';
import { spentBy } from '../../rl/spending.js';
import { Diverged } from '../../store/objects/store-errors.js';

/** No group had two graded members that differ: there is nothing to learn from, and nothing is wrong. */
const noSignal: NoSignal = 'no_signal';

export async function updatePolicy(
  deps: NodeDeps,
  input: StepReference & { plan: Digest; elsewhere?: number; faults?: StepFaults },
): Promise<CommittedStep> {
  const { store, holder } = deps;
  const { run, step } = input;
  await checkOwner(store, run, input.owner);
  const committed = await readUpdateIfAny(store, run, step);
  if (committed) return answer(deps, input, committed);
  const { record: plan } = await readPlan(store, run, step, input.plan);
  await checkRoots(store, plan);
  const scope = currentScope();
  const evidence = attemptEvidence(store, run, step, scope, deps.life);
  const sealing = span('seal', () => sealBatch(deps, input, plan));
  const { batch, identity, adopted } = await sealing.catch(async (error: unknown) => {
    if (error instanceof Diverged) await evidence.diverged('seal', input.plan, error);
    throw error;
  });
  // Whoever sealed it may have gone on, and the engine's state is not changed for a step that is committed.
  const commitMeanwhile = adopted ? await readUpdateIfAny(store, run, step) : null;
  if (commitMeanwhile) return answer(deps, input, commitMeanwhile);
  const started = performance.now();
  const stepId = stepIdOf(plan.previous_state, batch, input.plan);
  const learns = identity.loss_tokens.every((tokens) => tokens > 0);
  const account = currentAccount();
  const works: WorkUnit[] = [];
  const apply = (): Promise<UpdateResult> => {
    works.push(account.begin('update'));
    scope.progress({ verb: 'update' });
    const onProgress = (shards: UpdateProgress): void => scope.progress({ verb: 'update', shards });
    return holder.apply({ run, step, plan, batch, stepId, onProgress, signal: scope.signal });
  };
  const unchanged = { state: plan.previous_state, applied: { reason: noSignal }, metrics: {} };
  const { spec } = (await deps.runs.get(run)).record;
  const namesWeights = step === lastWarmStep(spec) && spec.model.lora === undefined;
  const advance = async (): Promise<UpdateResult & { weights?: Digest }> => {
    const result = learns ? await apply() : unchanged;
    // Before anybody else changes what is held.
    const weights = namesWeights ? (await holder.engine.held({ weights: true }))?.weights : null;
    return weights ? { ...result, weights } : result;
  };
  const compute = async (provenance: Provenance): Promise<UpdateRecord> => {
    const { weights, ...result } =
      learns || namesWeights
        ? await holder.alone(run, step - 1, stepId, advance, scope, provenance)
        : { ...unchanged, weights: undefined };
    const computedMs = performance.now() - started;
    await stoppingPoint('update-computed');
    const engine = await holder.engine.info();
    await evidence.recovered();
    const faults = await faultFigures(deps, input, account.troubled);
    return {
      schema: 'longhaul.update/2',
      identity: {
        run,
        step,
        kind: plan.kind,
        plan: input.plan,
        batch,
        previous_state: plan.previous_state,
        state: result.state,
        step_id: stepId,
        // The holder refuses an engine with others; without a loss nothing was computed.
        numerics: plan.numerics,
        applied: result.applied,
        outcomes: identity.outcomes,
        ...(weights === undefined ? {} : { weights }),
      },
      observed: {
        metrics: {
          ...episodeFigures(plan, identity),
          ...policyMetrics(result.metrics),
          'policy/policy_lr': plan.optimizer.learning_rates.at(-1) ?? 0,
          ...faults,
        },
        timings_ms: {
          policy_train: round(computedMs),
          ...stepTimings(deps, run, step),
          ...stallOf(deps, run, step),
          ...(input.elsewhere ? { elsewhere: round(1000 * input.elsewhere) } : {}),
        },
        engine: { build: engine.build, incarnation: engine.incarnation },
        committed_at: new Date().toISOString(),
        worker: deps.life.identity,
      },
    };
  };
  const keep = async (error: Diverged): Promise<void> => {
    account.fails('diverged', stepId);
    await evidence.diverged('update', stepId, error);
  };
  const stored = await recordOnceAgreed(deps, run, step, compute, keep);
  for (const work of works) work.end();
  const { totalMs: busyMs } = deps.meter;
  deps.lastCommits.set(run, { step, at: performance.now(), busyMs, faults: figuresOf(run, stored) });
  await stoppingPoint('update-recorded');
  return answer(deps, input, stored);
}

/**
 * Where another author's record says otherwise, the step is computed once more on a fresh engine, and once more from an older
 * checkpoint, before a person must look; each result is kept beside the record (R19).
 */
async function recordOnceAgreed(
  deps: NodeDeps,
  run: string,
  step: number,
  compute: (provenance: Provenance) => Promise<UpdateRecord>,
  keep: (error: Diverged) => Promise<void>,
): Promise<UpdateRecord> {
  const key = updateKey(run, step);
  const attempt = async (provenance: Provenance): Promise<UpdateRecord | Diverged> => {
    try {
      return (await recordFunction(deps.store, key, 'update', await compute(provenance))).record;
    } catch (error) {
      if (!(error instanceof Diverged)) throw error;
      await keep(error);
      return error;
    }
  };
  let result = await attempt(provenances[0]);
  for (const provenance of provenances.slice(1)) {
    if (!(result instanceof Diverged)) return result;
    deps.log(`${result.message} Computing step ${step} once more`);
    result = await attempt(provenance);
  }
  if (!(result instanceof Diverged)) return result;
  throw new Diverged(
    `${result.message} Three computations here disagree with it; their results are in ${attemptsFolder(run, step)}. ` +
      `Compare with: longhaul audit ${run} --replay ${step}..${step}. ` +
      `To go on from the stored state of step ${step}: longhaul resume ${run}`,
    result.evidence,
  );
}

/** Shown of a step. With its environments a step has hundreds of metrics, and the history would carry them all. */
const shownMetrics = [
  'reward/avg_raw_reward',
  'policy/final_loss',
  'policy/grad_norm',
  'policy/policy_lr',
  'policy/policy_kl',
];

/** Whoever wrote the record may have been handed fewer faults, or none: those go on with the next step. */
async function answer(
  deps: NodeDeps,
  { run, step, faults }: StepReference & { faults?: StepFaults },
  record: UpdateRecord,
): Promise<CommittedStep> {
  const ungraded = await lackOfGradesIn(deps, run, record);
  const committed = { ...summary(record), ...(ungraded === null ? {} : { ungraded }) };
  if (!faults) return committed;
  const before = await figuresBefore(deps, run, step);
  const unrecorded = uncounted(faults.figures, before, figuresOf(run, record));
  return { ...committed, ...(Object.keys(unrecorded).length > 0 ? { unrecorded } : {}) };
}

/** Episodes are read back only where too few of them are graded. A rebased step has none of its own. */
async function lackOfGradesIn(
  { store, runs }: NodeDeps,
  run: string,
  { identity }: UpdateRecord,
): Promise<string | null> {
  const share = maxUnknownShare((await runs.get(run)).record);
  const outcomes = identity.outcomes.flat();
  const graded = outcomes.filter((value) => value !== null).length;
  if (!tooFewGraded(graded, outcomes.length - graded, share)) return null;
  const lack = lackOfGrades(await readStepEpisodes(store, identity.run, identity.step), share);
  return lack === null ? null : `step ${identity.step} of ${run}: ${lack}`;
}

function summary(record: UpdateRecord): CommittedStep {
  const { step, kind, state, applied } = record.identity;
  return {
    step,
    kind,
    state,
    applied: applied === true,
    reason: applied === true ? null : applied.reason,
    spent: spentBy(record),
    faults: figuresOf(record.identity.run, record),
    metrics: Object.fromEntries(
      Object.entries(record.observed.metrics).filter(([name]) => shownMetrics.includes(name)),
    ),
  };
}

/** Totals since the run began. Attempt records are looked at only where something went wrong. */
async function faultFigures(
  deps: NodeDeps,
  { run, step, faults }: StepReference & { faults?: StepFaults },
  troubled: boolean,
): Promise<FaultFigures> {
  const { record } = await deps.runs.get(run);
  const before = await figuresBefore(deps, run, step);
  const recorded =
    troubled || faults?.recorded ? faultsIn(await readStepAttempts(deps.store, run, step)) : {};
  const figures = plusFigures(plusFigures(before, recorded), faults?.figures ?? {});
  return asOf((Date.now() - Date.parse(record.observed.started_at)) / 1000, figures);
}

async function figuresBefore(deps: NodeDeps, run: string, step: number): Promise<FaultFigures> {
  const { record } = await deps.runs.get(run);
  if (step === (record.lineage?.step ?? 0) + 1) return {};
  const known = commitBefore(deps, run, step)?.faults;
  return known ?? figuresOf(run, await readUpdateIfAny(deps.store, run, step - 1));
}

/** Null where another process committed the step before. */
function commitBefore({ lastCommits }: NodeDeps, run: string, step: number): LastCommit | null {
  const commit = lastCommits.get(run);
  return commit?.step === step - 1 ? commit : null;
}

/** `step`: since the commit before; `in_flight`: of it, with an engine verb or an environment call under way. */
function stepTimings(deps: NodeDeps, run: string, step: number): Record<string, number> {
  const before = commitBefore(deps, run, step);
  if (!before) return {};
  return {
    step: round(performance.now() - before.at),
    in_flight: round(deps.meter.totalMs - before.busyMs),
  };
}

/** Milliseconds of the step in which only the save of the state before was under way. */
function stallOf({ checkpointStalls }: NodeDeps, run: string, step: number): Record<string, number> {
  const stall = checkpointStalls.get(run);
  return stall?.step === step ? { checkpoint_stall: round(stall.ms) } : {};
}

function round(milliseconds: number): number {
  return Math.round(milliseconds * 10) / 10;
}

/** A rebased step has sampled nothing, and a budget counts what was. */
function episodeFigures(plan: PlanRecord, { metrics, outcomes }: BatchIdentity): Record<string, number> {
  if (plan.kind !== 'grpo') return metrics;
  const groups = plan.slots.map(({ env_key }, slot) => ({ env: env_key, values: outcomes[slot] ?? [] }));
  const figures = stepMetrics(metrics, groups);
  return plan.rebased ? withoutSampling(figures) : figures;
}

function withoutSampling(metrics: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !name.startsWith('generate/')));
}

/** The engine's figures under SkyRL's names. */
function policyMetrics(metrics: Record<string, number>): Record<string, number> {
  const names: Record<string, string> = {
    loss: 'policy/final_loss',
    grad_norm: 'policy/grad_norm',
    clip_ratio: 'policy/ppo_clip_ratio',
    max_logprob_difference: 'policy/rollout_train_logprob_diff_max',
    kl: 'policy/policy_kl',
    entropy: 'policy/policy_entropy',
    tis_weight: 'policy/tis_imp_ratio',
  };
  return Object.fromEntries(
    Object.entries(metrics).map(([name, value]) => [names[name] ?? `policy/${name}`, value]),
  );
}
