// What a Tinker server does where servers differ, found out by its effect on log-probs. A probe trains a few sequences so that the answers
// it tells apart move their log-probs in opposite directions: rounding and reordered sums cannot be taken for an answer.
import type { ServedReduction } from './passes.js';
import type { ProbeModel, ProbeModels } from './probe-models.js';
import type { Datum } from './wire.js';

/** A server whose log-probs hardly moved has answered nothing. */
type Unclear = 'unclear';

export type NumbersFound = 'known' | 'unknown' | Unclear;
export type LoadFound = 'restored' | 'cold' | 'other_weights' | Unclear;
export type GradientsFound = 'left' | 'cleared' | Unclear;
export type ReductionFound = ServedReduction | Unclear;
export type ClippingFound = 'alive' | 'dead' | Unclear;

type Text = readonly number[];
/** One array a text, one value a predicted token. */
type PerToken = readonly (readonly number[])[];

/** Ids that every vocabulary has. */
const texts: readonly Text[] = Array.from({ length: 4 }, (_, text) =>
  Array.from({ length: 24 }, (_, at) => (37 * text + 11 * at + 5) % 200),
);
/** Every predicted token of a text; one of them alone. */
const everywhere = texts.map((text) => text.slice(1).map(() => 1));
const oneTarget = 12;
const once = texts.map((text) => text.slice(1).map((_, at) => (at === oneTarget ? 1 : 0)));

const leastMove = 1e-4;
/** Part of a step's effect that counts as none. */
const littleOf = 0.25;

/** Whether a number that is sent twice is one request: an answer that was lost may then be asked for again (R34). */
export function probeNumbers(models: ProbeModels): Promise<NumbersFound> {
  return models.with(async (model) => {
    const before = await model.logprobs(texts);
    // Once, the second pass outweighs it; twice, it outweighs the second pass.
    const isOne = await model.passTwice(datums(before, everywhere, 1));
    await model.pass(datums(before, everywhere, -1.5));
    await model.step();
    const moved = meanMove(before, await model.logprobs(texts), everywhere);
    return byDirection(moved, { rose: 'unknown', fell: isOne ? 'known' : 'unknown' });
  });
}

/** How the losses of a pass are added up. */
export function probeReduction(models: ProbeModels): Promise<ReductionFound> {
  return models.with(async (model) => {
    const before = await model.logprobs(texts);
    const alone = datums(before, once, 1);
    // As a sum these outweigh the first ones; as a mean over all their tokens they do not.
    const among = datums(before, everywhere, -2, once);
    await model.pass([...alone, ...among]);
    await model.step();
    const moved = meanMove(before, await model.logprobs(texts), once);
    return byDirection(moved, { rose: 'sequence_mean', fell: 'sum' });
  });
}

/** Whether the next model trains on gradients of one that was unloaded. */
export async function probeGradients(models: ProbeModels): Promise<GradientsFound> {
  await models.with(async (model) => {
    await model.pass(datums(await model.logprobs(texts), everywhere, 3));
    await model.unloadUnflushed();
  });
  // The next model comes into the same place of the server.
  try {
    return await models.with(async (model) => {
      const before = await model.logprobs(texts);
      await model.pass(datums(before, everywhere, -1));
      await model.step();
      const moved = meanMove(before, await model.logprobs(texts), everywhere);
      return byDirection(moved, { rose: 'left', fell: 'cleared' });
    });
  } catch (error) {
    await models.flush();
    throw error;
  }
}

/** Whether `grad_clip_norm` has an effect. */
export function probeClipping(models: ProbeModels): Promise<ClippingFound> {
  return models.with(async (model) => {
    const before = await model.logprobs(texts);
    await model.pass(datums(before, everywhere, 1));
    // Gradients so far below the optimizer's epsilon move nothing.
    await model.step({ grad_clip_norm: 1e-12 });
    const clipped = await model.logprobs(texts);
    await model.pass(datums(clipped, everywhere, 1));
    await model.step();
    const free = distance(clipped, await model.logprobs(texts));
    if (!(free >= leastMove)) return 'unclear';
    return distance(before, clipped) < littleOf * free ? 'alive' : 'dead';
  });
}

/** `apart`: how far log-probs of equal weights lie apart, asked for twice and after a load; null if no load gave equal weights. */
interface LoadProbe {
  found: LoadFound;
  apart: number | null;
}

/** Whether a model that begins with a saved state goes on as the saved one did. */
export async function probeLoad(models: ProbeModels): Promise<LoadProbe> {
  const stepOn = async (model: ProbeModel): Promise<PerToken> => {
    await trainOn(model, texts.slice(2));
    return model.logprobs(texts);
  };
  const { path, saved, again, ahead } = await models.with(async (model) => {
    await trainOn(model, texts.slice(0, 2));
    return {
      path: await model.save('probe'),
      saved: await model.logprobs(texts),
      again: await model.logprobs(texts),
      ahead: await stepOn(model),
    };
  });
  const scale = distance(saved, ahead);
  if (!(scale >= leastMove)) return { found: 'unclear', apart: null };
  return models.with(async (model) => {
    await model.load(path);
    const loaded = await model.logprobs(texts);
    const moved = distance(saved, loaded);
    if (!(moved <= littleOf * scale)) return { found: 'other_weights', apart: null };
    const isRestored = distance(await stepOn(model), ahead) <= littleOf * scale;
    return { found: isRestored ? 'restored' : 'cold', apart: Math.max(moved, distance(saved, again)) };
  });
}

/** Whether the model has the token `id`. Some servers end with a fault where they do not: this probe comes last. */
export function probeToken(models: ProbeModels, id: number): Promise<boolean> {
  return models.with(async (model) => {
    const logprobs = await model.logprobs([[5, id, 7, id, 9]]);
    return logprobs.flat().every(Number.isFinite);
  });
}

async function trainOn(model: ProbeModel, some: readonly Text[]): Promise<void> {
  const data = some.map((text) => ({
    tokens: text.slice(0, -1),
    inputs: { target_tokens: { dtype: 'int64' as const, data: text.slice(1) } },
  }));
  await model.pass(data, 'cross_entropy');
  await model.step();
}

/** `advantage`: at tokens of `where`, which are those of `weights` unless said otherwise; 0 at the others. */
function datums(old: PerToken, weights: PerToken, advantage: number, where: PerToken = weights): Datum[] {
  const floats = (data: readonly number[] = []) => ({ dtype: 'float32' as const, data });
  return texts.map((text, index) => ({
    tokens: text.slice(0, -1),
    inputs: {
      target_tokens: { dtype: 'int64', data: text.slice(1) },
      weights: floats(weights[index]),
      logprobs: floats(old[index]),
      advantages: floats(where[index]?.map((one) => one * advantage)),
    },
  }));
}

function byDirection<T>(moved: number, found: { rose: T; fell: T }): T | Unclear {
  if (!(Math.abs(moved) >= leastMove)) return 'unclear';
  return moved > 0 ? found.rose : found.fell;
}

/** Over the tokens of `where`. */
function meanMove(before: PerToken, after: PerToken, where: PerToken): number {
  const [from, to, weights] = [before.flat(), after.flat(), where.flat()];
  const sum = weights.reduce((sum, weight, at) => sum + weight * ((to[at] ?? NaN) - (from[at] ?? NaN)), 0);
  return sum / weights.reduce((sum, weight) => sum + weight, 0);
}

/** Mean over all tokens. NaN where one is not finite. */
function distance(a: PerToken, b: PerToken): number {
  const [left, right] = [a.flat(), b.flat()];
  return left.reduce((sum, value, at) => sum + Math.abs(value - (right[at] ?? NaN)), 0) / left.length;
}
