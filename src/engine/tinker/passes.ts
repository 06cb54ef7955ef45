// From a step's batch to the sequences and losses of a Tinker server (R34): a function of the batch, the plan and fixed limits alone, so
// whoever sends a step again sends the same bytes.
import type { BatchArrays } from '../../spec/records/batch.js';
import type { LossPlan } from '../../spec/records/loss-plan.js';
import type { Datum } from './wire.js';

/** Limits of one request; part of what a step's requests are made of, so they never change for a run. */
interface ChunkLimits {
  sequences: number;
  tokens: number;
}

interface ServedLoss {
  loss_fn: string;
  loss_fn_config: Record<string, number>;
}

/** Whether the server adds up the losses of tokens, or takes the mean over sequences of each one's weighted mean. */
export type ServedReduction = 'sum' | 'sequence_mean';

/** A sequence of the batch with its targets. */
interface Sequence {
  tokens: number[];
  /** By place in `tokens`: what is learned there. */
  targets: { at: number; token: number; advantage: number; old: number }[];
}

export function servedLoss(loss: LossPlan): ServedLoss {
  switch (loss.kind) {
    case 'cross_entropy':
      return { loss_fn: 'cross_entropy', loss_fn_config: {} };
    case 'regular':
      return { loss_fn: 'ppo', loss_fn_config: clip(loss.eps_clip_low, loss.eps_clip_high) };
    case 'gspo':
      return { loss_fn: 'gspo', loss_fn_config: clip(loss.eps_clip_low, loss.eps_clip_high) };
    case 'cispo':
      return { loss_fn: 'cispo', loss_fn_config: clip(loss.cispo_eps_clip_low, loss.cispo_eps_clip_high) };
    case 'reinforce':
      return { loss_fn: 'importance_sampling', loss_fn_config: {} };
    default:
      throw new TypeError(`the loss ${loss.kind} is not available on a Tinker server`);
  }
}

function clip(low: number | undefined, high: number | undefined): Record<string, number> {
  return { clip_low_threshold: 1 - (low ?? 0), clip_high_threshold: 1 + (high ?? 0) };
}

/**
 * A step's requests: for each mini-batch, the sequences of each chunk. `rescored` [M]: the trainer's log-probs of the targets before the step,
 * for truncated importance sampling. Throws a TypeError on a sequence that no chunk can hold.
 */
export function chunksOf(
  batch: BatchArrays,
  loss: LossPlan,
  reduction: ServedReduction,
  limits: ChunkLimits,
  rescored?: Float32Array,
): Datum[][][] {
  return sequencesOf(rescored ? weighed(batch, rescored, loss.tis_cap ?? Infinity) : batch).map(
    (sequences) => {
      const scale = scaleOf(loss, reduction, sequences);
      return inChunks(
        sequences.map((sequence) => datumOf(sequence, loss, scale(sequence))),
        limits,
      );
    },
  );
}

/** The old log-probs become the trainer's, and each advantage is weighed by min(exp(trainer's − sampler's), cap): docs/engine.md, "Losses". */
function weighed(batch: BatchArrays, rescored: Float32Array, cap: number): BatchArrays {
  const sampled = batch.target_rollout_logprobs ?? batch.target_old_logprobs;
  const weight = (at: number): number =>
    Math.min(Math.exp((rescored[at] as number) - (sampled?.[at] as number)), cap);
  return {
    ...batch,
    target_old_logprobs: rescored,
    target_advantages: batch.target_advantages.map((advantage, at) => advantage * weight(at)),
  };
}

/** Log-probs at the places that a request trains on, in its order; NaN where the server gives none. */
export function trainedLogprobs(
  data: readonly Datum[],
  outputs: readonly Record<string, number[]>[],
): number[] {
  return data.flatMap(({ inputs }, index) =>
    (inputs['weights']?.data ?? []).flatMap((weight, at) =>
      weight === 0 ? [] : [outputs[index]?.['logprobs']?.[at] ?? NaN],
    ),
  );
}

/** By mini-batch, in the batch's order. The prefix tree is taken apart again: a server takes sequences. */
function sequencesOf(batch: BatchArrays): Sequence[][] {
  const { target_rows, target_samples, target_tokens, target_advantages } = batch;
  const old = batch.target_old_logprobs ?? batch.target_rollout_logprobs;
  const { nodeAt, nodes } = treeOf(batch);
  const miniBatches: Sequence[][] = [];
  for (let target = 0; target < target_rows.length;) {
    let end = target;
    while (target_samples[end] === target_samples[target]) end += 1;
    const path = pathTo(nodes, nodeAt, target_rows[end - 1] as number);
    const place = new Map(path.map((row, at) => [row, at]));
    const targets: Sequence['targets'] = [];
    for (let one = target; one < end; one++)
      targets.push({
        at: place.get(target_rows[one] as number) as number,
        token: target_tokens[one] as number,
        advantage: target_advantages[one] as number,
        old: old?.[one] ?? 0,
      });
    const miniBatch = nodes[nodeAt[target_rows[target] as number] as number]?.miniBatch ?? 0;
    (miniBatches[miniBatch] ??= []).push({ tokens: path.map((row) => batch.tokens[row] as number), targets });
    target = end;
  }
  return miniBatches;
}

/** Rows `start` to `end`, not included. */
interface TreeNode {
  parent: number;
  start: number;
  end: number;
  miniBatch: number;
}

function treeOf({ nodes: table, tokens }: BatchArrays): { nodes: TreeNode[]; nodeAt: Int32Array } {
  const nodes: TreeNode[] = [];
  const nodeAt = new Int32Array(tokens.length);
  for (let column = 0, start = 0; column < table.length; column += 3) {
    const [parent, length, miniBatch] = table.subarray(column, column + 3) as unknown as [
      number,
      number,
      number,
    ];
    nodeAt.fill(nodes.length, start, start + length);
    nodes.push({ parent, start, end: start + length, miniBatch });
    start += length;
  }
  return { nodes, nodeAt };
}

/** Rows from a root to `last`. A sample goes through the whole of each node but its last one. */
function pathTo(nodes: readonly TreeNode[], nodeAt: Int32Array, last: number): number[] {
  const parts: number[][] = [];
  let end = last + 1;
  for (let node = nodes[nodeAt[last] as number]; node; node = nodes[node.parent]) {
    const { start } = node;
    parts.push(Array.from({ length: end - start }, (_, offset) => start + offset));
    end = nodes[node.parent]?.end ?? 0;
  }
  return parts.reverse().flat();
}

/** Factor of each sequence's losses that makes the server's reduction the plan's (docs/engine-protocol.md has the plan's). */
function scaleOf(
  loss: LossPlan,
  reduction: ServedReduction,
  sequences: readonly Sequence[],
): (sequence: Sequence) => number {
  const all = sequences.reduce((sum, { targets }) => sum + targets.length, 0);
  /** Weight of a token's loss in the plan's sum. */
  const share = (targets: number): number => {
    if (loss.reduction === 'token_mean') return 1 / all;
    if (loss.reduction === 'sequence_mean') return 1 / (sequences.length * targets);
    return 1 / (sequences.length * (loss.max_seq_len ?? 1));
  };
  return ({ targets: { length } }) =>
    reduction === 'sum' ? share(length) : share(length) * sequences.length * length;
}

/** What is learned where nothing is predicted has weight 0. A cross-entropy is scaled by its weights, for it has no advantages. */
function datumOf({ tokens, targets }: Sequence, loss: LossPlan, scale: number): Datum {
  const zeros = (): number[] => new Array<number>(tokens.length).fill(0);
  const [following, weights, advantages, old] = [[...tokens.slice(1), 0], zeros(), zeros(), zeros()];
  const isCrossEntropy = loss.kind === 'cross_entropy';
  for (const target of targets) {
    following[target.at] = target.token;
    weights[target.at] = isCrossEntropy ? scale : 1;
    advantages[target.at] = target.advantage * scale;
    old[target.at] = target.old;
  }
  const floats = (data: number[]): { dtype: 'float32'; data: number[] } => ({ dtype: 'float32', data });
  return {
    tokens,
    inputs: {
      target_tokens: { dtype: 'int64', data: following },
      weights: floats(weights),
      ...(isCrossEntropy ? {} : { logprobs: floats(old), advantages: floats(advantages) }),
    },
  };
}

function inChunks(datums: readonly Datum[], { sequences, tokens }: ChunkLimits): Datum[][] {
  const chunks: Datum[][] = [];
  let held = Infinity;
  for (const datum of datums) {
    const { length } = datum.tokens;
    if (length > tokens)
      throw new TypeError(
        `a sequence of ${length} tokens is longer than the largest request, ${tokens} tokens`,
      );
    if (held + length > tokens || (chunks.at(-1)?.length ?? sequences) >= sequences) {
      chunks.push([]);
      held = 0;
    }
    chunks.at(-1)?.push(datum);
    held += length;
  }
  return chunks;
}
