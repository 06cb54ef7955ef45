// Checks the batches of a run by a second implementation of docs/records.md. `longhaul audit` only repeats the function that sealed a
// batch: a wrong advantage or a shifted mask would come out the same again.
import type { BatchArrays } from '../../../src/spec/records/batch.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import type { GrpoPlan } from '../../../src/spec/records/plan.js';
import { decodeBatchFile } from '../../../src/store/files/batch-file.js';
import { sha256Hex } from '../../../src/base/sha256.js';
import { readStepEpisodes } from '../../../src/store/runs/episodes.js';
import { batchKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { lastCommittedStep, readPlan } from '../../../src/store/runs/run-records.js';
import { readBatch } from '../../../src/store/runs/stored-batch.js';

/** One token that the policy learns. */
interface Target {
  /** All tokens that the prediction of the token sees, and the token itself. */
  reads: string;
  oldLogprob: number;
  advantage: number;
}

/** Tolerance for float32 values that were computed in another order. */
const tolerance = 1e-5;

/** Checks the batch of every step. For supervised steps it checks only constants. `run`: a run that is no fork. */
export async function wrongBatches(store: ObjectStore, run: string): Promise<string[]> {
  const problems: string[] = [];
  const last = await lastCommittedStep(store, run);
  for (let step = 1; step <= last; step++) {
    const key = batchKey(run, step);
    const bytes = await readBatch(store, run, step);
    if (!bytes) continue;
    const { arrays } = decodeBatchFile(bytes, key);
    const plan = await readPlan(store, { run, step });
    const found =
      plan.kind === 'grpo'
        ? wrongTargets(plan, await readStepEpisodes(store, run, step), arrays)
        : wrongConstants(arrays);
    problems.push(...found.map((problem) => `${key}: ${problem}`));
  }
  return problems;
}

/** `episodes`: all episodes of the plan, in any order. */
export function wrongTargets(
  plan: GrpoPlan,
  episodes: readonly EpisodeRecord[],
  arrays: BatchArrays,
): string[] {
  const inOrder = (targets: Target[]): Target[] =>
    targets.sort((a, b) =>
      a.reads === b.reads
        ? a.oldLogprob - b.oldLogprob || a.advantage - b.advantage
        : a.reads < b.reads
          ? -1
          : 1,
    );
  const expected = inOrder(expectedTargets(plan, episodes));
  const found = inOrder(targetsOf(arrays));
  if (found.length !== expected.length)
    return [`it has ${found.length} targets, its episodes give ${expected.length}`];
  const at = found.findIndex((target, index) => !isSame(target, expected[index]!));
  if (at < 0) return [];
  const [has, should] = [found[at]!, expected[at]!];
  if (has.reads !== should.reads) return [`a target reads ${has.reads}, its episodes give ${should.reads}`];
  if (Math.abs(has.oldLogprob - should.oldLogprob) > tolerance)
    return [`a target has the old log-prob ${has.oldLogprob}, its episode says ${should.oldLogprob}`];
  return [`a target has the advantage ${has.advantage}, its group gives ${should.advantage}`];
}

const isSame = (a: Target, b: Target): boolean =>
  a.reads === b.reads &&
  Math.abs(a.oldLogprob - b.oldLogprob) <= tolerance &&
  Math.abs(a.advantage - b.advantage) <= tolerance * Math.max(1, Math.abs(b.advantage));

/** Checks a cross-entropy batch only for its constants: a supervised step learns from demonstrations, not from episodes. */
function wrongConstants({ target_advantages, target_old_logprobs }: BatchArrays): string[] {
  if (target_advantages.every((one) => one === 1) && target_old_logprobs?.every((one) => one === 0))
    return [];
  return ['a supervised target has another advantage than 1 or another old log-prob than 0'];
}

/** The tokens that the policy sampled in graded episodes, for groups whose graded values differ. */
function expectedTargets(plan: GrpoPlan, episodes: readonly EpisodeRecord[]): Target[] {
  const { advantages } = plan;
  if (advantages.estimator !== 'grpo' || !advantages.norm_by_std || advantages.deviation !== 'population')
    throw new Error('only the advantages of the presets are implemented a second time');
  const { eps } = advantages;
  return plan.slots.flatMap(({ slot }) => {
    const graded = episodes.flatMap((episode) =>
      episode.slot === slot && episode.outcome.status === 'graded'
        ? [{ episode, value: episode.outcome.value }]
        : [],
    );
    const n = graded.length;
    const mean = graded.reduce((total, { value }) => total + value / n, 0);
    const variance = graded.reduce((total, { value }) => total + (value - mean) ** 2 / n, 0);
    const differ = graded.some(({ value }) => value !== graded[0]?.value);
    if (!differ) return [];
    return graded.flatMap(({ episode, value }) =>
      sampledPositions(episode).map((position, index) => ({
        reads: reading(episode.tokens.slice(0, position), episode.tokens[position]!),
        oldLogprob: episode.logprobs[index]!,
        advantage: (value - mean) / (Math.sqrt(variance) + eps),
      })),
    );
  });
}

const sampledPositions = ({ turns }: EpisodeRecord): number[] =>
  turns.flatMap(({ start, end }) => Array.from({ length: end - start }, (_, index) => start + index));

/** A row sees all tokens of its node's ancestors and the tokens of its own node up to itself. */
function targetsOf(arrays: BatchArrays): Target[] {
  const nodes = Array.from({ length: arrays.nodes.length / 3 }, (_, index) => ({
    parent: arrays.nodes[3 * index]!,
    length: arrays.nodes[3 * index + 1]!,
  }));
  const paths: number[][] = [];
  const nodeOf: number[] = [];
  const firstRows: number[] = [];
  for (const [node, { parent, length }] of nodes.entries()) {
    const first = nodeOf.length;
    firstRows.push(first);
    paths.push([...(parent < 0 ? [] : paths[parent]!), ...arrays.tokens.subarray(first, first + length)]);
    for (let offset = 0; offset < length; offset++) nodeOf.push(node);
  }
  const seenBy = (row: number): number[] => {
    const node = nodeOf[row]!;
    const after = firstRows[node]! + nodes[node]!.length - row - 1;
    return paths[node]!.slice(0, paths[node]!.length - after);
  };
  return [...arrays.target_rows].map((target, index) => ({
    reads: reading(seenBy(target), arrays.target_tokens[index]!),
    oldLogprob: (arrays.target_old_logprobs ?? arrays.target_rollout_logprobs)![index]!,
    advantage: arrays.target_advantages[index]!,
  }));
}

/** Text for a message: short, and different for different tokens. */
const reading = (context: readonly number[], token: number): string =>
  `${context.length} tokens (${sha256Hex(context.join(' ')).slice(0, 12)}, … ${context.slice(-3).join(' ')}) → ${token}`;
