// What a step sends to a Tinker server, as its plan, its batch and the run's spec alone decide (R34).
import { chunksOf } from '../../engine/tinker/passes.js';
import type { AdamParams } from '../../engine/tinker/service.js';
import type { Datum } from '../../engine/tinker/wire.js';
import type { BatchArrays } from '../../spec/records/batch.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import { defaultWeightsTolerance } from '../../spec/model-schema.js';
import type { RunSpec, ServedModel } from '../../spec/run-spec.js';

export function servedOf({ model }: RunSpec): ServedModel {
  if (model.served) return model.served;
  throw new Error('a run without model.served has come to a node of a Tinker server');
}

export function weightsTolerance({ weights_tolerance }: Pick<ServedModel, 'weights_tolerance'>): number {
  return weights_tolerance ?? defaultWeightsTolerance;
}

export function isSaved({ trainer }: RunSpec, step: number): boolean {
  return step % (trainer.save_every ?? 1) === 0;
}

export function isRescored({ loss }: PlanRecord): boolean {
  return loss.tis_cap !== undefined;
}

/** The requests of a step's passes, by mini-batch. */
export function chunked(
  spec: RunSpec,
  plan: PlanRecord,
  batch: BatchArrays,
  rescored?: Float32Array,
): Datum[][][] {
  const { reduction, chunk_sequences, chunk_tokens } = servedOf(spec);
  const limits = { sequences: chunk_sequences, tokens: chunk_tokens };
  return chunksOf(batch, plan.loss, reduction, limits, rescored);
}

/** `grad_clip_norm` is sent only to a server that clips: it would look as if it were applied elsewhere. */
export function adamOf(
  { optimizer }: Pick<PlanRecord, 'optimizer'>,
  miniBatch: number,
  { clips }: Pick<ServedModel, 'clips'>,
): AdamParams {
  const [beta1, beta2] = optimizer.adam_betas;
  return {
    learning_rate: optimizer.learning_rates[miniBatch] ?? 0,
    ...{ beta1, beta2, eps: optimizer.adam_eps, weight_decay: optimizer.weight_decay },
    ...(clips ? { grad_clip_norm: optimizer.max_grad_norm } : {}),
  };
}
