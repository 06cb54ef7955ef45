// Packs a step's samples into the forest that the engine trains on (docs/engine-protocol.md, "The batch file"): one prefix tree per
// mini-batch. A common beginning (system and tool text, a group's prompt, the first turns) is stored once, and so computed once. A pure
// function of the samples and their order.
import type { BatchArrays } from '../spec/records/batch.js';

/** Batch arrays with a log-prob for each target. */
export type PackedForest = BatchArrays & Required<Pick<BatchArrays, 'target_old_logprobs'>>;

export interface SampleToPack {
  /** The whole sequence, prompt first. */
  tokens: readonly number[];
  /**
   * Tokens that carry loss, by index into `tokens`, ascending. The first index is at least 1, because the first token is never predicted.
   */
  targets: readonly { index: number; advantage: number; oldLogprob: number }[];
}

const nodeColumns = 3;

/**
 * Packs the samples of each mini-batch in (slot, sample) order; samples without targets are left out. Nodes are in depth-first order,
 * branches in the order in which samples reach them, targets sample by sample. Throws a TypeError if the targets' indices do not ascend
 * from 1.
 */
export function packForest(miniBatches: readonly (readonly SampleToPack[])[]): PackedForest {
  const trees = miniBatches.map((samples) => {
    const trained = samples.filter(({ targets }) => targets.length > 0);
    const roots = prefixTree(trained);
    return { trained, nodes: depthFirst(roots), roots };
  });
  const nodes = trees.flatMap((tree) => tree.nodes);
  const forest = allocate({
    nodes: nodes.length,
    rows: nodes.reduce((sum, { start, end }) => sum + end - start, 0),
    targets: trees.reduce((sum, { trained }) => sum + targetsIn(trained), 0),
  });
  let [node, row, target, sample] = [0, 0, 0, 0];
  for (const [miniBatch, tree] of trees.entries()) {
    for (const one of tree.nodes) {
      one.index = node;
      one.firstRow = row;
      forest.nodes.set([one.parent?.index ?? -1, one.end - one.start, miniBatch], nodeColumns * node);
      for (let at = one.start; at < one.end; at++) forest.tokens[row++] = one.source[at] as number;
      node += 1;
    }
    for (const one of tree.trained) {
      target = addTargets(forest, tree.roots, one, sample, target);
      sample += 1;
    }
  }
  return forest;
}

/** A sequence of tokens without a branch. */
interface TreeNode {
  /** Tokens of one sample that passes through this node. The node's tokens are `source[start..end)`, the same in every such sample. */
  source: readonly number[];
  start: number;
  end: number;
  /** By first token, in the order in which samples reach them. */
  children: Branches;
  parent: TreeNode | null;
  index: number;
  firstRow: number;
}
type Branches = Map<number, TreeNode>;

function prefixTree(samples: readonly SampleToPack[]): Branches {
  const roots: Branches = new Map();
  for (const sample of samples) insert(roots, sample.tokens, inputsOf(sample));
  return roots;
}

/** Number of input tokens. The last target is predicted from the token before it, so it is no input itself. */
function inputsOf({ tokens, targets }: SampleToPack): number {
  let last = 0;
  for (const { index } of targets) {
    if (!Number.isInteger(index) || index <= last || index >= tokens.length)
      throw new TypeError(
        `a target at token ${index} of ${tokens.length} follows one at ${last}: targets must ascend from 1`,
      );
    last = index;
  }
  return last;
}

/** Adds a sample to the tree. Each token is compared once, with the only node that can contain it. */
function insert(roots: Branches, tokens: readonly number[], length: number): void {
  let branches = roots;
  let parent: TreeNode | null = null;
  let at = 0;
  while (at < length) {
    const node = branches.get(tokens[at] as number);
    if (!node) {
      branches.set(tokens[at] as number, newNode(tokens, at, length, parent));
      return;
    }
    while (at < length && at < node.end && node.source[at] === tokens[at]) at += 1;
    if (at === length) return;
    if (at < node.end) split(node, at);
    else if (node.children.size === 0) {
      // No sample so far goes beyond this node, so the node itself takes the new tokens.
      node.source = tokens;
      node.end = length;
      return;
    }
    [branches, parent] = [node.children, node];
  }
}

/** The node keeps the tokens before `at` and its place among its siblings; a new child gets the rest. */
function split(node: TreeNode, at: number): void {
  const rest = newNode(node.source, at, node.end, node);
  rest.children = node.children;
  for (const child of rest.children.values()) child.parent = rest;
  node.end = at;
  node.children = new Map([[node.source[at] as number, rest]]);
}

function newNode(source: readonly number[], start: number, end: number, parent: TreeNode | null): TreeNode {
  return { source, start, end, children: new Map(), parent, index: -1, firstRow: -1 };
}

/** Not recursive, because a tree can be as deep as its mini-batch has turns. */
function depthFirst(roots: Branches): TreeNode[] {
  const order: TreeNode[] = [];
  const open = [...roots.values()].reverse();
  for (let node = open.pop(); node; node = open.pop()) {
    order.push(node);
    open.push(...[...node.children.values()].reverse());
  }
  return order;
}

/** Adds the targets of one sample from index `first` on; returns the next free index. */
function addTargets(
  forest: PackedForest,
  roots: Branches,
  { tokens, targets }: SampleToPack,
  sample: number,
  first: number,
): number {
  let target = first;
  let node = roots.get(tokens[0] as number) as TreeNode;
  for (const { index, advantage, oldLogprob } of targets) {
    const before = index - 1;
    while (before >= node.end) node = node.children.get(tokens[node.end] as number) as TreeNode;
    forest.target_rows[target] = node.firstRow + before - node.start;
    forest.target_tokens[target] = tokens[index] as number;
    forest.target_samples[target] = sample;
    forest.target_advantages[target] = advantage;
    forest.target_old_logprobs[target] = oldLogprob;
    target += 1;
  }
  return target;
}

function targetsIn(samples: readonly SampleToPack[]): number {
  return samples.reduce((sum, { targets }) => sum + targets.length, 0);
}

function allocate({ nodes, rows, targets }: { nodes: number; rows: number; targets: number }): PackedForest {
  return {
    nodes: new Int32Array(nodeColumns * nodes),
    tokens: new Int32Array(rows),
    target_rows: new Int32Array(targets),
    target_tokens: new Int32Array(targets),
    target_samples: new Int32Array(targets),
    target_advantages: new Float32Array(targets),
    target_old_logprobs: new Float32Array(targets),
  };
}
