// updatePolicy (R10–R12): plan and episodes → batch → state n. It looks for the record first, then in the engine's memory, and computes
// only if both lack the result.
import { currentAccount } from '../attempt/attempt-account.js';
import type { AllFiltered, CommittedStep, NoSignal, StepReference } from '../contracts.js';
import { attemptEvidence, type EvidenceWriter } from '../attempt/attempt-evidence.js';
import type { NodeDeps } from '../node-deps.js';
import { currentScope } from '../attempt/scope.js';
import { type SealedBatch, sealBatch } from './seal-batch.js';
import { askStepEnvironments, noticeChanges, type StepEnvironments } from './step-environments.js';
import { committedStep, observedUpdate } from './update-figures.js';
import type { RunData } from '../../data/run-data.js';
import { span } from '../../base/spans.js';
import { type Provenance, provenances } from '../../policy/state-keeper.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { UpdateProgress, UpdateResult } from '../../engine/policy-engine.js';
import type { Digest } from '../../spec/records/parts.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { lastWarmStep } from '../../spec/schedule.js';
import { stepIdOf } from '../../store/records/canonical.js';
import { attemptsFolder, batchKey, updateKey } from '../../store/record-keys.js';
import { checkOwner } from '../../store/runs/owners.js';
import { readPlanOfStep } from '../../store/runs/plan-roots.js';
import { isSetAsideSince } from '../../store/runs/quarantine.js';
import { recordFunction } from '../../store/records/records.js';
import { readUpdateIfAny } from '../../store/runs/run-records.js';
import { Diverged } from '../../store/record-errors.js';
import { hasSignal } from '../../spec/records/wave.js';

/** `elsewhere`: seconds in which other nodes played this step's episodes. */
type UpdateInput = StepReference & { plan: Digest; elsewhere?: number };

/** A step with a stored batch. */
interface SealedStep extends SealedBatch {
  data: RunData;
  plan: PlanRecord;
  planDigest: Digest;
  stepId: Digest;
  elsewhere: number;
  /** On the clock of `performance.now()`. */
  sealedAt: number;
  /** Asked while the update is computed. */
  environments: Promise<StepEnvironments>;
}

export async function updatePolicy(deps: NodeDeps, input: UpdateInput): Promise<CommittedStep> {
  const { run, step } = input;
  await checkOwner(deps.store, run, input.owner);
  const data = await deps.runs.get(run);
  const update = await committedUpdate(deps, input, data);
  // Whichever process committed the step, its record now counts the tokens sent for it.
  deps.sent?.committed(run, step, update.observed.committed_at);
  return committedStep(deps, data, update);
}

/** The step's record: the stored one, or that of the update which this attempt computes. */
async function committedUpdate(deps: NodeDeps, input: UpdateInput, data: RunData): Promise<UpdateRecord> {
  const { store, life } = deps;
  const { run, step, plan: planDigest, elsewhere = 0 } = input;
  const committed = await readUpdateIfAny(store, run, step);
  if (committed) return committed;
  const plan = await readPlanOfStep(store, input);
  const evidence = attemptEvidence(store, run, step, currentScope(), life);
  const sealing = span('seal', () => sealBatch(store, plan, data));
  const sealed = await sealing.catch(async (error: unknown) => {
    if (error instanceof Diverged) await evidence.diverged('seal', planDigest, error);
    throw error;
  });
  // The attempt that sealed the batch may have committed the step since. The engine's state must not change for a committed step.
  const committedMeanwhile = sealed.adopted ? await readUpdateIfAny(store, run, step) : null;
  if (committedMeanwhile) return committedMeanwhile;
  const stepId = stepIdOf(plan.previous_state, sealed.batch, planDigest);
  const environments = askStepEnvironments(store, plan, data, currentScope().signal);
  const planned = { data, plan, planDigest, stepId, elsewhere, environments };
  const stored = await recordOnceAgreed(
    deps,
    { ...sealed, ...planned, sealedAt: performance.now() },
    evidence,
  );
  currentAccount().finished();
  deps.lastCommits.set(run, { step, at: performance.now(), busyMs: deps.meter.totalMs });
  await noticeChanges(deps, data, stored).catch((error: unknown) => deps.log(String(error)));
  await stoppingPoint('update-recorded');
  return stored;
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
  const { run, step } = sealed.plan;
  let disagreement: Diverged | null = null;
  for (const provenance of provenances) {
    if (disagreement) deps.log(`${disagreement.message} Computing step ${step} once more`);
    try {
      const computed = await compute(deps, sealed, provenance);
      const computedMs = performance.now() - sealed.sealedAt;
      await stoppingPoint('update-computed');
      // The failures are recorded first, so that a reader who sees the committed step also sees them.
      await evidence.recovered();
      const update = recordOf(sealed, computed, await observedUpdate(deps, sealed, computed, computedMs));
      // If the batch was set aside meanwhile, readers no longer find it, so its update must not be committed.
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

/** `weights`: digest of the model's weights; present only at the end of a warm start without adapters. */
type ComputedUpdate = UpdateResult & { weights?: Digest };

/** Restores state n − 1 and computes state n from it; with nothing to learn, the state stays the same. */
async function compute(
  { holder }: NodeDeps,
  { data, plan, batch, identity, stepId }: SealedStep,
  provenance: Provenance,
): Promise<ComputedUpdate> {
  const { run, step } = plan;
  const { spec } = data.record;
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
  const advance = async (): Promise<ComputedUpdate> => {
    const result = learns ? await apply() : unchanged;
    // Read the weights now, before another caller changes the engine's state.
    const weights = namesWeights ? await holder.keeper.weights() : null;
    return weights ? { ...result, weights } : result;
  };
  if (!learns && !namesWeights) return unchanged;
  return holder.alone(run, step - 1, stepId, advance, scope, provenance);
}

/**
 * Why a step has no targets. `no_signal`: no group has two graded members with different rewards, which is no fault. `all_filtered`:
 * overlong filtering took every target of the groups that have a signal.
 */
function lackOf(plan: PlanRecord, outcomes: (number | null)[][]): NoSignal | AllFiltered {
  if (plan.kind !== 'grpo' || !plan.overlong_filtering) return 'no_signal';
  // reinforce++ compares the samples of the whole step.
  const compared = plan.advantages.estimator === 'reinforce++' ? [outcomes.flat()] : outcomes;
  return compared.some(hasSignal) ? 'all_filtered' : 'no_signal';
}

function recordOf(
  { plan, planDigest, batch, identity, stepId }: SealedStep,
  { state, applied, weights, rescored }: ComputedUpdate,
  observed: UpdateRecord['observed'],
): UpdateRecord {
  return {
    schema: 'longhaul.update/4',
    identity: {
      run: plan.run,
      step: plan.step,
      kind: plan.kind,
      plan: planDigest,
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
    observed,
  };
}
