// updatePolicy (R10–R12): plan and episodes → batch → state n. It looks for the record first, then in the engine's memory, and computes
// only if both lack the result.
import { currentAccount } from '../attempt/attempt-account.js';
import type { AllFiltered, CommittedStep, NoSignal, StepReference } from '../contracts.js';
import { attemptEvidence, type EvidenceWriter } from '../attempt/attempt-evidence.js';
import { lackOfGrades, maxUnknownShare, tooFewGraded } from '../../rl/grades.js';
import type { NodeDeps } from '../node-deps.js';
import { currentScope } from '../attempt/scope.js';
import { type SealedBatch, sealBatch } from './seal-batch.js';
import { episodeFigures, policyMetrics } from '../../rl/metrics.js';
import { askStepEnvironments, noticeChanges, type StepEnvironments } from './step-environments.js';
import { sentFigures } from './sent-figures.js';
import { span } from '../../base/spans.js';
import { type Provenance, provenances } from '../../policy/state-keeper.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { UpdateProgress, UpdateResult } from '../../engine/policy-engine.js';
import type { Digest } from '../../spec/records/parts.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { lastWarmStep } from '../../spec/warm-start.js';
import { stepIdOf } from '../../store/records/canonical.js';
import { readStepEpisodes } from '../../store/runs/episodes.js';
import { attemptsFolder, batchKey, updateKey } from '../../store/objects/layout.js';
import { checkOwner } from '../../store/runs/owners.js';
import { checkRoots } from '../../store/runs/plan-roots.js';
import { isSetAsideSince } from '../../store/runs/quarantine.js';
import { recordFunction } from '../../store/records/records.js';
import { readPlan, readUpdateIfAny } from '../../store/runs/run-records.js';
import { spentBy } from '../../rl/spending.js';
import { Diverged } from '../../store/objects/store-errors.js';
import { hasSignal, withWaves } from '../../spec/records/wave.js';
import { wavesOf } from './waves.js';

/** No group has two graded members with different rewards: there is nothing to learn, but this is no fault. */
const noSignal: NoSignal = 'no_signal';
/** Overlong filtering took every target of the groups that have a signal. */
const allFiltered: AllFiltered = 'all_filtered';

/** `elsewhere`: seconds in which other nodes played this step's episodes. */
type UpdateInput = StepReference & { plan: Digest; elsewhere?: number };

/** A step with a stored batch. */
interface SealedStep extends SealedBatch {
  input: UpdateInput;
  plan: PlanRecord;
  stepId: Digest;
  /** On the clock of `performance.now()`. */
  sealedAt: number;
  /** Asked while the update is computed. */
  environments: Promise<StepEnvironments>;
}

export async function updatePolicy(deps: NodeDeps, input: UpdateInput): Promise<CommittedStep> {
  const { store, life } = deps;
  const { run, step } = input;
  await checkOwner(store, run, input.owner);
  const committed = await readUpdateIfAny(store, run, step);
  if (committed) return answer(deps, run, committed);
  const { record: plan } = await readPlan(store, run, step, input.plan);
  await checkRoots(store, plan);
  const evidence = attemptEvidence(store, run, step, currentScope(), life);
  const sealing = span('seal', () => sealBatch(deps, input, plan));
  const sealed = await sealing.catch(async (error: unknown) => {
    if (error instanceof Diverged) await evidence.diverged('seal', input.plan, error);
    throw error;
  });
  // The attempt that sealed the batch may have committed the step since. The engine's state must not change for a committed step.
  const commitMeanwhile = sealed.adopted ? await readUpdateIfAny(store, run, step) : null;
  if (commitMeanwhile) return answer(deps, run, commitMeanwhile);
  const stepId = stepIdOf(plan.previous_state, sealed.batch, input.plan);
  const isPlayed = plan.kind === 'grpo' && !plan.rebased;
  const environments = isPlayed
    ? askStepEnvironments(deps, plan, currentScope().signal)
    : Promise.resolve({});
  const sealedStep = { ...sealed, input, plan, stepId, environments, sealedAt: performance.now() };
  const stored = await recordOnceAgreed(deps, sealedStep, evidence);
  currentAccount().finished();
  deps.lastCommits.set(run, { step, at: performance.now(), busyMs: deps.meter.totalMs });
  await noticeChanges(deps, stored).catch((error: unknown) => deps.log(String(error)));
  await stoppingPoint('update-recorded');
  return answer(deps, run, stored);
}

/**
 * Computes the update and records it. If another attempt has stored a different record, the step is computed again on a fresh engine, then
 * again from an older checkpoint; only then must a person look. Each result is kept beside the record (R19).
 */
async function recordOnceAgreed(
  deps: NodeDeps,
  sealed: SealedStep,
  evidence: EvidenceWriter,
): Promise<UpdateRecord> {
  const { run, step } = sealed.input;
  let disagreement: Diverged | null = null;
  for (const provenance of provenances) {
    if (disagreement) deps.log(`${disagreement.message} Computing step ${step} once more`);
    try {
      const computed = await compute(deps, sealed, provenance);
      const computedMs = performance.now() - sealed.sealedAt;
      await stoppingPoint('update-computed');
      // The failures are recorded first, so that a reader who sees the committed step also sees them.
      await evidence.recovered();
      const update = await recordOf(deps, sealed, computed, computedMs);
      // An attempt that outlived its run's pause would commit a batch that nobody finds.
      if (await isSetAsideSince(deps.store, run, batchKey(run, step)))
        throw new Error(`the batch of step ${step} of ${run} was set aside while its update was computed`);
      return (await recordFunction(deps.store, updateKey(run, step), 'update', update)).record;
    } catch (error) {
      if (!(error instanceof Diverged)) throw error;
      currentAccount().fails('diverged', sealed.stepId);
      await evidence.diverged('update', sealed.stepId, error);
      disagreement = error;
    }
  }
  throw new Diverged(
    `${disagreement?.message ?? ''} Three computations on this node disagree with its record; their results are in ${attemptsFolder(run, step)}. ` +
      `Compare with: longhaul audit ${run} --replay ${step}..${step}. ` +
      `To continue from the stored state of step ${step}: longhaul resume ${run}`,
    disagreement?.evidence,
  );
}

/**
 * Computes state n from state n − 1; with nothing to learn, the state stays the same. `weights`: digest of the model's weights; present
 * only at the end of a warm start without adapters.
 */
async function compute(
  { holder, runs }: NodeDeps,
  { input: { run, step }, plan, batch, identity, stepId }: SealedStep,
  provenance: Provenance,
): Promise<UpdateResult & { weights?: Digest }> {
  const { spec } = (await runs.get(run)).record;
  const scope = currentScope();
  const apply = (): Promise<UpdateResult> => {
    currentAccount().begin('update');
    scope.progress({ verb: 'update' });
    const onProgress = (shards: UpdateProgress): void => scope.progress({ verb: 'update', shards });
    const { signal, progress } = scope;
    return holder.apply({ run, step, plan, batch, stepId, onProgress, signal, progress });
  };
  const unchanged = {
    state: plan.previous_state,
    applied: { reason: lackOf(plan, identity.outcomes) },
    metrics: {},
  };
  const learns = identity.loss_tokens.every((tokens) => tokens > 0);
  const namesWeights = step === lastWarmStep(spec) && spec.model.lora === undefined;
  const advance = async (): Promise<UpdateResult & { weights?: Digest }> => {
    const result = learns ? await apply() : unchanged;
    // Read the weights now, before another caller changes the engine's state.
    const weights = namesWeights ? await holder.keeper.weights() : null;
    return weights ? { ...result, weights } : result;
  };
  if (!learns && !namesWeights) return unchanged;
  return holder.alone(run, step - 1, stepId, advance, scope, provenance);
}

/** Why a step has no targets. */
function lackOf(plan: PlanRecord, outcomes: (number | null)[][]): NoSignal | AllFiltered {
  if (plan.kind !== 'grpo' || !plan.overlong_filtering) return noSignal;
  // reinforce++ compares the samples of the whole step.
  const compared = plan.advantages.estimator === 'reinforce++' ? [outcomes.flat()] : outcomes;
  return compared.some(hasSignal) ? allFiltered : noSignal;
}

async function recordOf(
  deps: NodeDeps,
  { input, plan, batch, identity, stepId, episodes, environments: asked }: SealedStep,
  { state, applied, metrics, weights, rescored, served }: Awaited<ReturnType<typeof compute>>,
  computedMs: number,
): Promise<UpdateRecord> {
  const { run, step } = input;
  const { build, incarnation, gpu } = await deps.holder.engine.info();
  const environments = await asked;
  const committed_at = new Date().toISOString();
  return {
    // The oldest version that has what the record holds: older workers read it.
    schema: `longhaul.update/${served || rescored ? 4 : gpu === null ? 2 : 3}`,
    identity: {
      run,
      step,
      kind: plan.kind,
      plan: input.plan,
      batch,
      previous_state: plan.previous_state,
      state,
      step_id: stepId,
      // The plan's numerics are correct: the holder refuses an engine with other numerics, and a step without loss computes nothing.
      numerics: plan.numerics,
      applied,
      outcomes: identity.outcomes,
      ...(weights === undefined ? {} : { weights }),
      ...(rescored === undefined ? {} : { rescored }),
    },
    observed: {
      metrics: {
        ...episodeFigures(await playedPlan(deps, plan, identity.outcomes), identity),
        ...policyMetrics(metrics),
        'policy/policy_lr': plan.optimizer.learning_rates.at(-1) ?? 0,
        ...sentFigures(deps, { run, step, episodes }, committed_at),
      },
      timings_ms: timingsOf(deps, input, computedMs),
      engine: { build, incarnation },
      ...(gpu === null ? {} : { device: gpu.name }),
      ...(Object.keys(environments).length === 0 ? {} : { environments }),
      ...(served ? { served } : {}),
      committed_at,
      worker: deps.life.identity,
    },
  };
}

/** The plan with the slots of its waves. */
async function playedPlan(
  { runs }: NodeDeps,
  plan: PlanRecord,
  outcomes: (number | null)[][],
): Promise<PlanRecord> {
  if (plan.kind !== 'grpo' || !plan.dynamic_sampling) return plan;
  return withWaves(plan, wavesOf(plan, outcomes, await runs.get(plan.run)));
}

/** docs/records.md describes each timing under `longhaul.update`. */
function timingsOf(
  { lastCommits, checkpointStalls, meter }: NodeDeps,
  { run, step, elsewhere }: UpdateInput,
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

async function answer(deps: NodeDeps, run: string, record: UpdateRecord): Promise<CommittedStep> {
  const { step, kind, state, applied } = record.identity;
  deps.sent?.committed(run, step, record.observed.committed_at);
  const ungraded = await lackOfGradesIn(deps, run, record);
  return {
    step,
    kind,
    state,
    applied: applied === true,
    reason: applied === true ? null : applied.reason,
    spent: spentBy(record),
    metrics: Object.fromEntries(
      Object.entries(record.observed.metrics).filter(([name]) => shownMetrics.includes(name)),
    ),
    ...(ungraded === null ? {} : { ungraded }),
  };
}

/** Explains a lack of graded outcomes. Episodes are read only if grades are lacking. A rebased step has no episodes of its own. */
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
