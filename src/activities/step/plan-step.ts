// planStep (R7): fixes everything that the step may depend on, before its first token is sampled. If two plans are written, the first one
// counts.
import { ApplicationFailure } from '@temporalio/common';
import type { ControlIsBehind, PlannedStep, StepReference } from '../contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { rebasedPlan } from './rebased-step.js';
import { planOf, type StepBefore } from './step-plan.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { ControlRecord, ControlState } from '../../spec/records/control-records.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import { differences, recordDigest } from '../../store/records/canonical.js';
import { foldControl, keysSetAsideBy, readControl } from '../../store/runs/control-records.js';
import { planKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { checkOwner } from '../../store/runs/owners.js';
import { checkRoots, rootsOf } from '../../store/runs/plan-roots.js';
import { adoptOrCreate, readRecord } from '../../store/records/records.js';
import { readNumerics, readPlan, readState, readUpdate, referenceOf } from '../../store/runs/run-records.js';
import { UnreadableRecord } from '../../store/record-errors.js';

export async function planStep(
  deps: OrchestratorDeps,
  input: StepReference & { control: number },
): Promise<PlannedStep> {
  const { store } = deps;
  const { run, step } = input;
  await checkOwner(store, run, input.owner);
  const records = await readControl(store, run);
  const control = foldControl(records);
  // Changes that only set records aside do not count: they concern readers of the store, and the workflow does nothing with them.
  const unknown = records.slice(input.control).some(({ change }) => keysSetAsideBy(change).length === 0);
  if (unknown) throw controlIsBehind(run, input.control, control);
  const existing = await readRecord(store, planKey(run, step), 'plan');
  if (existing) {
    await checkRoots(store, existing);
    await checkMade(deps, existing, records);
    return answer(existing);
  }
  const plan = await makePlan(deps, input, records, true);
  await stoppingPoint('plan-built');
  const { record } = await adoptOrCreate(store, planKey(run, step), 'plan', plan);
  await stoppingPoint('plan-written');
  return answer(record);
}

/**
 * A workflow that was reset may have lost control records that it once received (R21). It must receive them before the step, because one
 * may be a pause.
 */
function controlIsBehind(run: string, known: number, control: ControlState): ApplicationFailure {
  return ApplicationFailure.create({
    message: `${run} has control record ${control.n}, but its workflow has folded only ${known}`,
    type: 'ControlIsBehind' satisfies ControlIsBehind,
    nonRetryable: true,
    details: [control],
  });
}

/**
 * Plans a step from the records before it. `planStep` stores the plan; the audit compares it with a stored one. `checked`: whether to check the
 * records that the plan depends on; false for the audit, which checks them itself.
 */
export async function makePlan(
  { store, runs }: Pick<OrchestratorDeps, 'store' | 'runs'>,
  { run, step, owner }: StepReference,
  records: readonly ControlRecord[],
  checked: boolean,
): Promise<PlanRecord> {
  const data = await runs.get(run);
  const control = foldControl(records);
  const place = { run, step, control: control.n, owner };
  const { lineage } = data.record;
  return planOf({
    own: {
      schema: 'longhaul.plan/4',
      ...place,
      previous_state: await readState(store, run, step - 1),
      numerics: await readNumerics(store, run),
      ...(await rootsOf(store, place)),
    },
    data,
    control,
    before: step === 1 ? null : await stepBefore(store, run, step - 1, checked),
    rebases:
      lineage?.rebase && step <= lineage.rebase.to ? await rebasedPlan(store, lineage.run, step) : null,
    reference: async () => (await referenceOf(store, run)).weights,
  });
}

/** The step before, on which the next step's curriculum depends: one changed bit would draw other tasks. Throws `UnreadableRecord`. */
async function stepBefore(
  store: ObjectStore,
  run: string,
  step: number,
  checked: boolean,
): Promise<StepBefore> {
  const { identity } = await readUpdate(store, run, step);
  const plan = await readPlan(store, identity);
  if (checked) await checkRoots(store, plan);
  return { plan, identity };
}

/**
 * Checks a stored plan before its step is committed: nothing names its digest yet, so a changed plan would change the step. Throws
 * `UnreadableRecord`.
 */
async function checkMade(
  deps: OrchestratorDeps,
  existing: PlanRecord,
  records: readonly ControlRecord[],
): Promise<void> {
  const made = await makePlan(deps, existing, records.slice(0, existing.control), false);
  const found = differences(existing, made);
  if (found.length === 0) return;
  const problem = `it was changed: made again from the records before it, it differs in ${found.join('; ')}`;
  throw new UnreadableRecord(planKey(existing.run, existing.step), problem);
}

function answer(plan: PlanRecord): PlannedStep {
  return {
    step: plan.step,
    kind: plan.rebased ? 'rebased' : plan.kind,
    plan: recordDigest(plan),
    slots: plan.kind === 'sft' ? 0 : plan.slots.length,
    ...(plan.kind === 'grpo' && plan.dynamic_sampling && !plan.rebased ? { waves: true } : {}),
  };
}
