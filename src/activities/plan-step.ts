// planStep (R7): fixes everything the step may depend on before its first token is sampled. The first plan wins.
import { ApplicationFailure } from '@temporalio/common';
import type { ControlIsBehind, PlannedStep, StepReference } from './contracts.js';
import type { OrchestratorDeps } from './orchestrator-deps.js';
import { settingsUnder } from './live-settings.js';
import { rebasedPlan } from './rebased-step.js';
import { phaseAt } from './phases.js';
import type { RunData } from './run-data.js';
import { samplingOf } from '../rl/sampling.js';
import { stoppingPoint } from './stopping-point.js';
import { advancePassRates, drawDemonstrations, drawTasks } from '../rl/curriculum.js';
import { constantWithWarmup, warmupThenDecay } from '../rl/learning-rate.js';
import { isPass } from '../rl/pass.js';
import { hash32 } from '../rl/random.js';
import { advantagesOf, crossEntropy, lossOf, wantsReference } from '../spec/loss.js';
import type { ControlState } from '../spec/control-records.js';
import type {
  CurriculumState,
  GrpoPlan,
  LossPlan,
  OptimizerPlan,
  PlanRecord,
  SftPlan,
} from '../spec/records.js';
import type { RunSpec, SftPhaseSpec } from '../spec/run-spec.js';
import { recordDigest } from '../store/canonical.js';
import { foldControl, readControl } from '../store/control-records.js';
import { planKey } from '../store/layout.js';
import { checkOwner } from '../store/owners.js';
import { adoptOrCreate, readRecord } from '../store/records.js';
import { readNumerics, readPlan, readState, readUpdate, referenceOf } from '../store/run-records.js';

export async function planStep(
  deps: OrchestratorDeps,
  input: StepReference & { control: number },
): Promise<PlannedStep> {
  const { store } = deps;
  const { run, step } = input;
  await checkOwner(store, run, input.owner);
  const records = await readControl(store, run);
  const control = foldControl(records);
  // What is set aside is for readers of the store; the workflow does nothing about it.
  const unknown = records.slice(input.control).some(({ change }) => change.kind !== 'quarantine');
  if (unknown) throw controlIsBehind(run, input.control, control);
  const existing = await readRecord(store, planKey(run, step), 'plan');
  if (existing) return answer(existing);
  const data = await deps.runs.get(run);
  const plan = await makePlan(deps, data, input, control);
  await stoppingPoint('plan-built');
  const { record } = await adoptOrCreate(store, planKey(run, step), 'plan', plan);
  await stoppingPoint('plan-written');
  return answer(record);
}

/** A workflow that was reset may have forgotten what it was told (R21): it learns it first, and may have to rest. */
function controlIsBehind(run: string, known: number, control: ControlState): ApplicationFailure {
  return ApplicationFailure.create({
    message: `${run} has control record ${control.n}, and its workflow knows of ${known} only`,
    type: 'ControlIsBehind' satisfies ControlIsBehind,
    nonRetryable: true,
    details: [control],
  });
}

async function makePlan(
  deps: OrchestratorDeps,
  data: RunData,
  { run, step, owner }: StepReference,
  control: ControlState,
): Promise<PlanRecord> {
  const { record } = data;
  const own = {
    run,
    previous_state: await readState(deps.store, run, step - 1),
    numerics: await readNumerics(deps.store, run),
    control: control.n,
    owner,
  };
  const { lineage } = record;
  if (lineage?.rebase && step <= lineage.rebase.to) {
    const source = await rebasedPlan(deps.store, lineage.run, step);
    return { ...source, ...own, ...(await referencePart(deps, run, source.loss)) };
  }
  const base = {
    schema: 'longhaul.plan/2' as const,
    step,
    ...own,
    digests: {
      tokenizer: record.tokenizer,
      chat_template: record.chat_template,
      tool_parser: record.tool_parser,
      dataset: record.dataset.digest,
    },
  };
  const phase = phaseAt(record.spec, step);
  if (phase.kind === 'sft')
    return {
      ...base,
      ...sftPart(data, phase.spec, phase.index),
      kind: 'sft',
      sampling: samplingOf(record.spec.generator),
    };
  const settings = settingsUnder(record.spec, control);
  const curriculum = await curriculumAfter(deps, run, step - 1);
  const resetMoments = await resetIsDue(deps, run, step, phase.index);
  const part = grpoPart(data, step, phase.index, curriculum, settings, resetMoments);
  return {
    ...base,
    ...part,
    ...(await referencePart(deps, run, part.loss)),
    kind: 'grpo',
    sampling: samplingOf(settings.generator),
  };
}

/** A rebased run has come to weights of its own, with other numerics, where its GRPO began. */
async function referencePart(
  { store }: OrchestratorDeps,
  run: string,
  loss: LossPlan,
): Promise<Pick<GrpoPlan, 'reference'>> {
  return wantsReference(loss) ? { reference: (await referenceOf(store, run)).weights } : {};
}

type SftPart = Pick<SftPlan, 'phase' | 'mini_batches' | 'optimizer' | 'loss' | 'curriculum'>;

/** `index` counts the phase's steps from 0; demonstrations are shuffled once an epoch. */
function sftPart(data: RunData, phase: SftPhaseSpec, index: number): SftPart {
  const lines = data.demonstrationsByKind.get(phase.demonstrations) ?? [];
  const first = index * phase.mini_batches_per_step;
  const last = Math.min(first + phase.mini_batches_per_step, phase.updates);
  const updates = Array.from({ length: last - first }, (_, offset) => first + offset);
  const drawn = drawDemonstrations({
    size: lines.length,
    miniBatchSize: phase.mini_batch_size,
    firstUpdate: first,
    count: updates.length,
    seed: data.record.seed,
    phase: phase.name,
  });
  return {
    phase: phase.name,
    mini_batches: drawn.map((places) => places.map((place) => lines[place] as number)),
    optimizer: {
      ...optimizerOf(data),
      learning_rates: updates.map((update) => warmupThenDecay(phase, update)),
      adam_betas: phase.adam_betas,
      reset_moments: index === 0,
    },
    loss: crossEntropy,
    curriculum: { pass_rates: {}, cursors: {} },
  };
}

type GrpoPart = Pick<
  GrpoPlan,
  'slots' | 'samples_per_slot' | 'advantages' | 'optimizer' | 'loss' | 'curriculum'
>;

function grpoPart(
  data: RunData,
  step: number,
  index: number,
  curriculum: CurriculumState,
  { generator, trainer }: Pick<RunSpec, 'generator' | 'trainer'>,
  resetMoments: boolean,
): GrpoPart {
  const drawn = drawTasks({
    sizes: new Map([...data.trainTasks].map(([template, keys]) => [template, keys.length])),
    state: curriculum,
    count: trainer.train_batch_size,
    floor: trainer.curriculum_floor,
    seed: data.record.seed,
    step,
  });
  return {
    slots: drawn.tasks.map(({ template, index: position }, slot) => {
      const task_key = data.trainTasks.get(template)?.[position] as string;
      const env_key = data.taskByKey.get(task_key)?.env_key as string;
      return { slot, task_key, env_key, template, seed: hash32(data.record.seed, step, slot) };
    }),
    samples_per_slot: generator.n_samples_per_prompt,
    optimizer: {
      ...optimizerOf(data),
      learning_rates: [constantWithWarmup(trainer.lr, trainer.warmup_steps, index)],
      adam_betas: trainer.adam_betas,
      reset_moments: resetMoments,
    },
    loss: lossOf(trainer, generator),
    advantages: advantagesOf(trainer),
    curriculum: { pass_rates: curriculum.pass_rates, cursors: drawn.cursors },
  };
}

function optimizerOf({
  record,
}: RunData): Pick<OptimizerPlan, 'adam_eps' | 'weight_decay' | 'max_grad_norm'> {
  const { adam_eps, weight_decay, max_grad_norm } = record.spec.trainer;
  return { adam_eps, weight_decay, max_grad_norm };
}

/** The moments of the phase before are cleared by the phase's first update that is applied, which need not be its first step. */
async function resetIsDue(
  deps: OrchestratorDeps,
  run: string,
  step: number,
  index: number,
): Promise<boolean> {
  if (index === 0) return true;
  const { record: previous } = await readPlan(deps.store, run, step - 1);
  if (!previous.optimizer.reset_moments) return false;
  return (await readUpdate(deps.store, run, step - 1)).identity.applied !== true;
}

/** What the step's outcomes did to its plan's curriculum; empty before the first GRPO step. */
async function curriculumAfter(deps: OrchestratorDeps, run: string, step: number): Promise<CurriculumState> {
  if (step < 1) return { pass_rates: {}, cursors: {} };
  const { record: plan } = await readPlan(deps.store, run, step);
  if (plan.kind !== 'grpo') return { pass_rates: {}, cursors: {} };
  const { identity } = await readUpdate(deps.store, run, step);
  const groups = plan.slots.map(({ template }, index) => ({
    template,
    rewards: (identity.outcomes[index] ?? []).map((value) => (value === null ? null : Number(isPass(value)))),
  }));
  return {
    pass_rates: advancePassRates(plan.curriculum.pass_rates, groups),
    cursors: plan.curriculum.cursors,
  };
}

function answer(plan: PlanRecord): PlannedStep {
  return {
    step: plan.step,
    kind: plan.rebased ? 'rebased' : plan.kind,
    plan: recordDigest(plan),
    slots: plan.kind === 'sft' ? 0 : plan.slots.length,
  };
}
