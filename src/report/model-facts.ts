// Says in words what was trained and by which objective: a reader asks this first about an unknown run.
import type { BaseRecord } from '../spec/records/update.js';
import type { RunRecord } from '../spec/records/run-records.js';
import { clipsRatio } from '../spec/records/live-ranges.js';
import { policyLossTypes } from '../spec/records/loss-plan.js';
import type { LoraSpec, Moments, TrainerSpec } from '../spec/run-spec.js';
import { withLaterSettings } from '../spec/spec-input.js';
import { lastWarmStep } from '../spec/schedule.js';
import { whole } from './format.js';

/** For the page's first lines. Null in the usual case, in which all weights are trained. */
export function loraInWords({ spec: { model } }: RunRecord): string | null {
  return model.lora ? `LoRA of rank ${model.lora.rank}` : null;
}

/** Rows of a table: a name and its value. */
export function modelFacts(record: RunRecord, base: BaseRecord | null): [string, string][] {
  const spec = withLaterSettings(record.spec);
  const { model } = spec;
  const parameters = base?.observed.parameters;
  const size = parameters ? ` of ${whole(parameters.model)} parameters` : '';
  return [
    [
      'begins with',
      model.path === undefined ? `random weights${size}` : `the folder ${model.path}, a model${size}`,
    ],
    ['trains', model.lora ? adapters(model.lora, parameters?.trained) : `all weights${size}`],
    ['optimizer', optimizer(spec.trainer, model.moments)],
    // The spec of another version may name a loss type that this version does not know.
    ...((policyLossTypes as readonly string[]).includes(spec.trainer.policy_loss_type)
      ? [['objective', objective(spec.trainer, lastWarmStep(spec))] satisfies [string, string]]
      : []),
  ];
}

function adapters({ rank, alpha, targets }: LoraSpec, parameters: number | undefined): string {
  const size = parameters === undefined ? '' : `, ${whole(parameters)} parameters`;
  return `LoRA adapters of rank ${rank}, alpha ${alpha}${size}, on ${targets.join(', ')}; the base weights do not change`;
}

function optimizer({ lr, warmup_steps, weight_decay }: TrainerSpec, moments: Moments): string {
  return [
    `AdamW, learning rate ${lr}${warmup_steps > 0 ? ` after ${warmup_steps} steps of warm-up` : ''}`,
    ...(weight_decay > 0 ? [`weight decay ${weight_decay}`] : []),
    ...(moments === 'int8' ? ['moments in 8 bits'] : []),
  ].join(', ');
}

function objective(trainer: TrainerSpec, warmSteps: number): string {
  const behind = warmSteps > 0 ? 'after the warm start' : 'at the beginning';
  return [
    `${trainer.policy_loss_type} loss, ${trainer.loss_reduction}`,
    ...(clipsRatio(trainer.policy_loss_type)
      ? [`ratio clipped at −${trainer.eps_clip_low} and +${trainer.eps_clip_high}`]
      : []),
    `${trainer.advantage_estimator} advantages`,
    ...(trainer.use_kl_loss
      ? [`${trainer.kl_loss_coef} × KL (${trainer.kl_estimator_type}) from the policy ${behind}`]
      : []),
    ...(trainer.use_entropy_loss ? [`${trainer.entropy_loss_coef} × entropy`] : []),
  ].join('; ');
}
