// Which values may change while a run is under way, and their ranges. A bad value is refused before anything is recorded (R21).
import type { ControlState, Hyperparameters } from '../spec/records/control-records.js';

interface Range {
  low: number;
  high: number;
  whole?: true;
}

const steps: Range = { low: 1, high: 1_000_000, whole: true };
/** Default of the spec's `model.architecture.max_position_embeddings`. */
const defaultPositions = 32_768;
/** The limit if the model is a folder: the workflow cannot read the folder's limit; the engine checks it. */
const mostPositions = 1_048_576;
/** Same list as `clipsRatio` of spec/loss.ts, which the workflow bundle does not include. */
const clippingLosses = ['regular', 'dual_clip', 'gspo'];

/** The spec's own ranges, limited further by the digits in a step's record keys: 100,000 slots with 1,000 samples each. */
function rangesFor(spec: unknown): Record<keyof Hyperparameters, Range> {
  const tokens: Range = { low: 1, high: positionsOf(spec), whole: true };
  return {
    lr: { low: 0, high: 1 },
    eps_clip_low: { low: 0, high: 1 },
    eps_clip_high: { low: 0.0001, high: 10 },
    kl_loss_coef: { low: 0, high: 10 },
    entropy_loss_coef: { low: 0, high: 1 },
    train_batch_size: { low: 1, high: 100_000, whole: true },
    ckpt_interval: steps,
    eval_interval: steps,
    temperature: { low: 0.01, high: 10 },
    n_samples_per_prompt: { low: 2, high: 1000, whole: true },
    max_turns: { low: 1, high: 1000, whole: true },
    max_input_length: tokens,
    max_generate_length: tokens,
    max_sequence_length: tokens,
  };
}

export const hyperparameterNames = Object.keys(rangesFor(null)) as (keyof Hyperparameters)[];

const example = 'for example {"lr": 0.0001, "temperature": 1}';

/** Why `values` cannot be set for a run of this spec, or null. `spec` is the workflow's unchecked input. */
export function problemWith(values: unknown, spec: unknown): string | null {
  if (typeof values !== 'object' || values === null || Array.isArray(values)) {
    return `setHyperparameters takes an object, ${example}`;
  }
  const ranges: Partial<Record<string, Range>> = rangesFor(spec);
  const given = Object.entries(values);
  const unknown = given.map(([name]) => name).filter((name) => !Object.hasOwn(ranges, name));
  const known = hyperparameterNames.join(', ');
  if (unknown.length > 0) return `setHyperparameters knows ${known}, not ${unknown.join(', ')}; ${example}`;
  if (given.length === 0) return `setHyperparameters needs one of ${known}, ${example}`;
  for (const [name, value] of given) {
    const range = ranges[name];
    if (range && !within(range, value)) {
      const kind = range.whole ? 'a whole number' : 'a number';
      return `${name} must be ${kind} from ${range.low} to ${range.high}, not ${JSON.stringify(value)}`;
    }
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

function within({ low, high, whole }: Range, value: unknown): boolean {
  if (typeof value !== 'number' || !Number.isFinite(value)) return false;
  return value >= low && value <= high && (!whole || Number.isInteger(value));
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
  if (name.startsWith('eps_clip_') && !clippingLosses.includes(kind))
    return `${name} changes nothing: policy_loss_type ${kind} does not clip the probability ratio there`;
  return null;
}

function positionsOf(spec: unknown): number {
  const { model } = (spec ?? {}) as {
    model?: { path?: unknown; architecture?: { max_position_embeddings?: unknown } };
  };
  if (typeof model?.path === 'string') return mostPositions;
  const positions = model?.architecture?.max_position_embeddings;
  return typeof positions === 'number' ? positions : defaultPositions;
}
