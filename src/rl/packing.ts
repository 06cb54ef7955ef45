// Packs a step's samples into the forest that the engine trains on (docs/engine-protocol.md, "The batch file").
// Shared prefixes become inner nodes, so that they are computed once. A pure function: the packing follows from the samples.
import { shardCount, type BatchArrays } from '../spec/batch.js';

export interface SampleToPack {
  /** Tokens after the group's prompt. */
  tokens: readonly number[];
  /** Tokens that carry loss, by index into `tokens`, ascending. */
  targets: readonly { index: number; advantage: number; oldLogprob: number }[];
}

export interface GroupToPack {
  /** Groups with one key share the beginning of their prompts; null: nothing is shared. */
  prefixKey: string | null;
  prompt: readonly number[];
  samples: readonly SampleToPack[];
}

/** Each shard repeats its families' beginnings; below this many tokens that costs more than an even spread is worth. */
const leastShardTokens = 1024;
/** A shorter common beginning is not worth a node of its own. */
const shortestPrefix = 8;

/** Groups of each mini-batch in (slot, sample) order. Samples without targets, and groups without samples, take no place. */
export function packForest(miniBatches: readonly (readonly GroupToPack[])[]): BatchArrays {
  const forest = new ForestBuilder();
  for (const [miniBatch, groups] of miniBatches.entries()) {
    const trained = groups
      .map((group) => ({ ...group, samples: group.samples.filter((sample) => sample.targets.length > 0) }))
      .filter((group) => group.samples.length > 0);
    const families = familiesOf(trained);
    for (const [shard, members] of assignShards(families).entries())
      packShard(forest, miniBatch, shard, members);
  }
  return forest.arrays();
}

interface Member {
  group: GroupToPack;
  /** Length of the beginning that this group shares with its family. */
  shared: number;
  family: number;
  cost: number;
}

/** Groups with one prefix key, in order of their first appearance, with what their prompts have in common. */
function familiesOf(groups: readonly GroupToPack[]): Member[] {
  const families = new Map<string, GroupToPack[]>();
  for (const [index, group] of groups.entries()) {
    const key = group.prefixKey ?? `\0${index}`;
    families.set(key, [...(families.get(key) ?? []), group]);
  }
  return [...families.values()].flatMap((members, family) => {
    const shared = members.length < 2 ? 0 : commonBeginning(members.map((group) => group.prompt));
    const saved = shared < shortestPrefix ? 0 : shared;
    return members.map((group) => ({
      group,
      family,
      shared: saved,
      // Without the shared beginning, which a shard holds once.
      cost:
        group.prompt.length - saved + group.samples.reduce((sum, sample) => sum + sample.tokens.length, 0),
    }));
  });
}

/** Consecutive members go to one shard, so that few shards repeat a family's beginning; shards are balanced in tokens. */
function assignShards(members: readonly Member[]): Member[][] {
  const total = members.reduce((sum, member) => sum + member.cost, 0);
  const used = Math.max(1, Math.min(shardCount, Math.floor(total / leastShardTokens)));
  const shards: Member[][] = Array.from({ length: shardCount }, () => []);
  let before = 0;
  for (const member of members) {
    const middle = before + member.cost / 2;
    shards[Math.min(used - 1, Math.floor((middle * used) / total))]?.push(member);
    before += member.cost;
  }
  return shards;
}

function packShard(
  forest: ForestBuilder,
  miniBatch: number,
  shard: number,
  members: readonly Member[],
): void {
  const place = { miniBatch, shard };
  let family = -1;
  let root = noNode;
  for (const { group, shared, family: own } of members) {
    if (own !== family) {
      family = own;
      root = shared > 0 ? forest.addNode(noNode, group.prompt.slice(0, shared), place) : noNode;
    }
    const rest = group.prompt.slice(shared);
    const single = group.samples.length === 1 ? group.samples[0] : undefined;
    if (single) {
      const inputs = inputsOf(single);
      const node = forest.addNode(root, [...rest, ...inputs], place);
      forest.addTargets(single, (index) => forest.firstRow(node) + rest.length + index - 1, place);
      continue;
    }
    const prompt = forest.addNode(root, rest, place);
    const lastPromptRow = forest.firstRow(prompt) + rest.length - 1;
    for (const sample of group.samples) {
      const inputs = inputsOf(sample);
      const leaf = inputs.length > 0 ? forest.addNode(prompt, inputs, place) : prompt;
      forest.addTargets(
        sample,
        (index) => (index === 0 ? lastPromptRow : forest.firstRow(leaf) + index - 1),
        place,
      );
    }
  }
}

/** The last target is only predicted, never read, and neither is what follows it. */
function inputsOf(sample: SampleToPack): readonly number[] {
  return sample.tokens.slice(0, sample.targets.at(-1)?.index ?? 0);
}

/** Leaves every prompt at least one token of its own: its last row predicts the first sampled token. */
function commonBeginning(prompts: readonly (readonly number[])[]): number {
  const [first = [], ...others] = prompts;
  let length = Math.min(...prompts.map((prompt) => prompt.length - 1));
  for (const other of others) {
    let same = 0;
    while (same < length && first[same] === other[same]) same += 1;
    length = same;
  }
  return Math.max(length, 0);
}

const noNode = -1;

interface Place {
  miniBatch: number;
  shard: number;
}

class ForestBuilder {
  readonly #nodes: number[] = [];
  readonly #firstRows: number[] = [];
  readonly #tokens: number[] = [];
  readonly #targetRows: number[] = [];
  readonly #targetTokens: number[] = [];
  readonly #advantages: number[] = [];
  readonly #oldLogprobs: number[] = [];
  readonly #targetPlaces: number[] = [];

  addNode(parent: number, tokens: readonly number[], { miniBatch, shard }: Place): number {
    this.#nodes.push(parent, tokens.length, miniBatch, shard);
    this.#firstRows.push(this.#tokens.length);
    for (const token of tokens) this.#tokens.push(token);
    return this.#firstRows.length - 1;
  }

  firstRow(node: number): number {
    return this.#firstRows[node] as number;
  }

  addTargets(sample: SampleToPack, rowOf: (index: number) => number, { miniBatch, shard }: Place): void {
    for (const { index, advantage, oldLogprob } of sample.targets) {
      this.#targetRows.push(rowOf(index));
      this.#targetTokens.push(sample.tokens[index] as number);
      this.#advantages.push(advantage);
      this.#oldLogprobs.push(oldLogprob);
      this.#targetPlaces.push(miniBatch, shard);
    }
  }

  arrays(): BatchArrays {
    return {
      nodes: Int32Array.from(this.#nodes),
      tokens: Int32Array.from(this.#tokens),
      target_rows: Int32Array.from(this.#targetRows),
      target_tokens: Int32Array.from(this.#targetTokens),
      target_advantages: Float32Array.from(this.#advantages),
      target_old_logprobs: Float32Array.from(this.#oldLogprobs),
      target_shards: Int32Array.from(this.#targetPlaces),
    };
  }
}
