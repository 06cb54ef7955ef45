// Which values may change while a run is under way, and their ranges. A bad value is refused before anything is recorded (R21).
import {
  clipsRatio,
  defaultPositions,
  type LiveSetting,
  liveRanges,
  type NumberRange,
} from '../spec/records/live-ranges.js';
import type { ControlState } from '../spec/records/control-records.js';

export const hyperparameterNames = Object.keys(liveRanges) as LiveSetting[];

const example = 'for example {"lr": 0.0001, "temperature": 1}';

/** Why `values` cannot be set for a run of this spec, or null. `spec` is the workflow's unchecked input. */
export function problemWith(values: unknown, spec: unknown): string | null {
  if (typeof values !== 'object' || values === null || Array.isArray(values)) {
    return `setHyperparameters takes an object, ${example}`;
  }
  const given = Object.entries(values);
  const unknown = given.map(([name]) => name).filter((name) => !Object.hasOwn(liveRanges, name));
  const known = hyperparameterNames.join(', ');
  if (unknown.length > 0) return `setHyperparameters knows ${known}, not ${unknown.join(', ')}; ${example}`;
  if (given.length === 0) return `setHyperparameters needs one of ${known}, ${example}`;
  for (const [name, value] of given) {
    const range = rangeOf(name as LiveSetting, spec);
    if (!within(range, value)) return `${name} must be ${textOf(range)}, not ${JSON.stringify(value)}`;
    const idle = whyIdle(name, spec);
    if (idle !== null) return idle;
  }
  return null;
}

/** One line for each changed value, such as `lr set to 0.0001`. */
export function settingNotes(control: ControlState): string[] {
  return hyperparameterNames.flatMap((name) => {
    const value = control[name] ?? null;
    return value === null ? [] : [`${name} set to ${value}`];
  });
}

/** Numbers of tokens are also limited by the model. Only the engine knows the limit of a model that is a folder. */
function rangeOf(name: LiveSetting, spec: unknown): NumberRange {
  const range: NumberRange = liveRanges[name];
  const positions = name.endsWith('_length') ? positionsOf(spec) : null;
  return positions === null ? range : { ...range, most: positions };
}

function within({ above, least, most, whole }: NumberRange, value: unknown): boolean {
  if (typeof value !== 'number' || !Number.isFinite(value) || (whole && !Number.isInteger(value)))
    return false;
  return value > (above ?? -Infinity) && value >= (least ?? -Infinity) && value <= (most ?? Infinity);
}

function textOf({ above, least, most, whole }: NumberRange): string {
  const kind = whole ? 'a whole number' : 'a number';
  const low = least === undefined ? `above ${above}` : `from ${least}`;
  if (most === undefined) return `${kind} ${low}`;
  return least === undefined ? `${kind} ${low} and at most ${most}` : `${kind} ${low} to ${most}`;
}

/** Why setting a value has no effect in a run of this spec, or null. The user sees the reason when the value is set. */
function whyIdle(name: string, spec: unknown): string | null {
  const trainer = ((spec ?? {}) as { trainer?: Record<string, unknown> }).trainer ?? {};
  const given = trainer['policy_loss_type'];
  const kind = typeof given === 'string' ? given : 'regular';
  if (name === 'kl_loss_coef' && trainer['use_kl_loss'] !== true)
    return 'kl_loss_coef changes nothing: the run has no KL term (trainer.use_kl_loss is not true in its spec)';
  if (name === 'entropy_loss_coef' && trainer['use_entropy_loss'] !== true)
    return 'entropy_loss_coef changes nothing: the run has no entropy term (trainer.use_entropy_loss is not true in its spec)';
  if (name.startsWith('eps_clip_') && !clipsRatio(kind))
    return `${name} changes nothing: policy_loss_type ${kind} does not clip the probability ratio there`;
  return null;
}

function positionsOf(spec: unknown): number | null {
  const { model } = (spec ?? {}) as {
    model?: { path?: unknown; architecture?: { max_position_embeddings?: unknown } };
  };
  if (typeof model?.path === 'string') return null;
  const positions = model?.architecture?.max_position_embeddings;
  return typeof positions === 'number' ? positions : defaultPositions;
}
