// Computes the plan of a step from the records before it (R7): the spec, the folded control, the data, and the plan and outcomes of the
// step before. planStep stores the plan; the audit computes it again and compares.
import { phaseAt, settingsUnder } from '../run/step-settings.js';
import type { RunData } from '../../data/run-data.js';
import { drawSlots, dynamicSamplingOf, type PoolKind, poolOf, rulesOf } from './draw-slots.js';
import { wavesOf } from './waves.js';
import { advancePassRates, drawDemonstrations } from '../../rl/curriculum.js';
import { constantWithWarmup, warmupThenDecay } from '../../rl/learning-rate.js';
import { isPass } from '../../rl/episode-reward.js';
import { samplingOf } from '../../rl/sampling.js';
import type { ControlState } from '../../spec/records/control-records.js';
import { advantagesOf, crossEntropy, lossOf, wantsReference } from '../../spec/loss.js';
import type {
  CurriculumState,
  GrpoPlan,
  OptimizerPlan,
  PlanRecord,
  SftPlan,
} from '../../spec/records/plan.js';
import type { Digest } from '../../spec/records/parts.js';
import type { LossPlan } from '../../spec/records/loss-plan.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { withWaves } from '../../spec/records/wave.js';
import type { RunSpec, SftPhaseSpec } from '../../spec/run-spec.js';

/** The part of a plan that gives its place in the chain of steps. */
type OwnPart = Pick<
  PlanRecord,
  | 'schema'
  | 'run'
  | 'step'
  | 'previous_state'
  | 'numerics'
  | 'control'
  | 'owner'
  | 'run_digest'
  | 'control_digest'
  | 'owner_digest'
>;

interface PlanSources {
  own: OwnPart;
  data: Pick<RunData, 'record' | 'trainTasks' | 'taskByKey' | 'demonstrationsByKind'>;
  control: ControlState;
  /** Null before the first step. */
  before: StepBefore | null;
  /** The plan to rebase; null for a step that is planned from data. */
  rebases: PlanRecord | null;
  /** Digest of the KL term's reference weights; called only if the plan has such a term. */
  reference: () => Promise<Digest>;
}

export interface StepBefore {
  plan: PlanRecord;
  identity: Pick<UpdateRecord['identity'], 'applied' | 'outcomes'>;
}

export async function planOf(sources: PlanSources): Promise<PlanRecord> {
  const { own, data, rebases } = sources;
  if (rebases) return { ...rebases, ...own, ...(await referencePart(sources, rebases.loss)) };
  const { record } = data;
  const base = {
    ...own,
    digests: {
      tokenizer: record.tokenizer,
      chat_template: record.chat_template,
      tool_parser: record.tool_parser,
      dataset: record.dataset.digest,
    },
  };
  const phase = phaseAt(record.spec, own.step);
  if (phase.kind === 'sft')
    return {
      ...base,
      ...sftPart(data, phase.spec, phase.index),
      kind: 'sft',
      sampling: samplingOf(record.spec.generator),
    };
  const settings = settingsUnder(record.spec, sources.control);
  const part = grpoPart(sources, phase.index, settings);
  return {
    ...base,
    ...part,
    ...(await referencePart(sources, part.loss)),
    kind: 'grpo',
    sampling: samplingOf(settings.generator),
  };
}

/** A rebased run needs a reference of its own: with other numerics, it began its GRPO phase with other weights than its parent. */
async function referencePart(
  { reference }: PlanSources,
  loss: LossPlan,
): Promise<Pick<GrpoPlan, 'reference'>> {
  return wantsReference(loss) ? { reference: await reference() } : {};
}

type SftPart = Pick<SftPlan, 'phase' | 'mini_batches' | 'optimizer' | 'loss' | 'curriculum'>;

/** `index` counts the phase's steps from 0. The demonstrations are shuffled again in each epoch. */
function sftPart(data: PlanSources['data'], phase: SftPhaseSpec, index: number): SftPart {
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
      ...optimizerOf(data.record.spec),
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
  'slots' | 'samples_per_slot' | 'advantages' | 'overlong_filtering' | 'optimizer' | 'loss' | 'curriculum'
>;

function grpoPart(
  sources: PlanSources,
  index: number,
  { generator, trainer }: Pick<RunSpec, 'generator' | 'trainer'>,
): GrpoPart {
  const { own, data, before } = sources;
  const { by = 'template' } = trainer.curriculum ?? {};
  const { pass_rates, cursors } = curriculumAfter(sources, by);
  const rules = rulesOf(trainer);
  const drawn = drawSlots(data, {
    ...{ step: own.step, by, rules, state: { pass_rates, cursors } },
    count: trainer.train_batch_size,
  });
  return {
    slots: drawn.slots,
    samples_per_slot: generator.n_samples_per_prompt,
    optimizer: {
      ...optimizerOf(data.record.spec),
      learning_rates: [constantWithWarmup(trainer.lr, trainer.warmup_steps, index)],
      adam_betas: trainer.adam_betas,
      reset_moments: resetIsDue(before, index),
    },
    loss: lossOf(trainer, generator),
    advantages: advantagesOf(trainer),
    ...dynamicSamplingOf(trainer, rules),
    ...(trainer.apply_overlong_filtering ? { overlong_filtering: true as const } : {}),
    curriculum: { pass_rates, cursors: drawn.cursors, ...(by === 'env' ? { by } : {}) },
  };
}

function optimizerOf({
  trainer: { adam_eps, weight_decay, max_grad_norm },
}: RunSpec): Pick<OptimizerPlan, 'adam_eps' | 'weight_decay' | 'max_grad_norm'> {
  return { adam_eps, weight_decay, max_grad_norm };
}

/**
 * The first applied update of a phase clears the previous phase's moments. That update may come after the phase's first step, because the
 * first step may apply nothing.
 */
function resetIsDue(before: StepBefore | null, index: number): boolean {
  if (index === 0 || before === null) return true;
  return before.plan.optimizer.reset_moments && before.identity.applied !== true;
}

/**
 * The curriculum after the outcomes of the step before. Empty before the first GRPO step, and if the step before kept its rates by template
 * and this one by environment or the reverse, as a fork may.
 */
function curriculumAfter({ before, data }: PlanSources, by: PoolKind): CurriculumState {
  const isKept = before?.plan.kind === 'grpo' && (before.plan.curriculum.by ?? 'template') === by;
  if (before?.plan.kind !== 'grpo' || !isKept) return { pass_rates: {}, cursors: {} };
  const { outcomes } = before.identity;
  const { slots, curriculum } = withWaves(before.plan, wavesOf(before.plan, outcomes, data));
  const groups = slots.map((slot, index) => ({
    pool: poolOf(slot, by),
    rewards: (outcomes[index] ?? []).map((value) => (value === null ? null : Number(isPass(value)))),
  }));
  return { pass_rates: advancePassRates(curriculum.pass_rates, groups), cursors: curriculum.cursors };
}
