import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { packForest, type SampleToPack } from '../../src/rl/packing.js';
import type { BatchArrays } from '../../src/spec/records/batch.js';

interface Target {
  sample: number;
  /** All tokens before the target, from which it is predicted. */
  context: number[];
  token: number;
  advantage: number;
  oldLogprob: number;
}

interface Node {
  parent: number;
  first: number;
  length: number;
  miniBatch: number;
}

function nodesOf({ nodes }: BatchArrays): Node[] {
  const found: Node[] = [];
  let first = 0;
  for (let at = 0; at < nodes.length; at += 3) {
    const [parent = -1, length = 0, miniBatch = -1] = nodes.subarray(at, at + 3);
    found.push({ parent, first, length, miniBatch });
    first += length;
  }
  return found;
}

/** The tokens of a node's ancestors, then its own. */
function pathOf(forest: BatchArrays, nodes: readonly Node[], index: number): number[] {
  const { parent, first, length } = nodes[index] as Node;
  const own = [...forest.tokens.slice(first, first + length)];
  return parent < 0 ? own : [...pathOf(forest, nodes, parent), ...own];
}

/** Reads a forest as the engine does: a row sees its ancestors' tokens, and its own node's tokens up to itself. */
function unpack(forest: BatchArrays): Map<number, Target[]> {
  const nodes = nodesOf(forest);
  const nodeOfRow = nodes.flatMap(({ length }, index) => new Array<number>(length).fill(index));
  const contextOf = (row: number): number[] => {
    const index = nodeOfRow[row] as number;
    const { first, length } = nodes[index] as Node;
    const path = pathOf(forest, nodes, index);
    return path.slice(0, path.length - (first + length - 1 - row));
  };
  const byMiniBatch = new Map<number, Target[]>();
  for (const [index, row] of forest.target_rows.entries()) {
    const { miniBatch } = nodes[nodeOfRow[row] as number] as Node;
    const list = byMiniBatch.get(miniBatch) ?? [];
    byMiniBatch.set(miniBatch, list);
    list.push({
      sample: forest.target_samples[index] as number,
      context: contextOf(row),
      token: forest.target_tokens[index] as number,
      advantage: forest.target_advantages[index] as number,
      oldLogprob: forest.target_old_logprobs?.[index] as number,
    });
  }
  return byMiniBatch;
}

/** The targets of the samples, in order; samples are numbered from `first` on. */
function targetsOf(samples: readonly SampleToPack[], first: number): Target[] {
  return trainedOf(samples).flatMap(({ tokens, targets }, place) =>
    targets.map(({ index, advantage, oldLogprob }) => ({
      sample: first + place,
      context: tokens.slice(0, index),
      token: tokens[index] as number,
      advantage: Math.fround(advantage),
      oldLogprob: Math.fround(oldLogprob),
    })),
  );
}

const trainedOf = (samples: readonly SampleToPack[]): SampleToPack[] =>
  samples.filter(({ targets }) => targets.length > 0);
/** The input tokens of a sample: those before its last target. */
const inputOf = ({ tokens, targets }: SampleToPack): number[] => tokens.slice(0, targets.at(-1)?.index ?? 0);

const token = fc.integer({ min: 0, max: 2 });
/** Few different tokens and common beginnings, so that samples share prefixes, branch, end inside others, or are equal. */
const sample = fc
  .tuple(
    fc.constantFrom([], [0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [2, 2, 2, 2, 2, 2, 2, 2, 2]),
    fc.array(fc.record({ token, trained: fc.boolean(), advantage: fc.integer({ min: -4, max: 4 }) }), {
      minLength: 2,
      maxLength: 9,
    }),
  )
  .map(([beginning, items]): SampleToPack => ({
    tokens: [...beginning, ...items.map((item) => item.token)],
    targets: items.flatMap(({ trained, advantage }, place) => {
      const index = beginning.length + place;
      return trained && index > 0 ? [{ index, advantage, oldLogprob: -index / 8 }] : [];
    }),
  }));
const miniBatch = fc.array(sample, { maxLength: 24 });
const batch = fc.array(miniBatch, { minLength: 1, maxLength: 3 });

describe('packing', () => {
  test('unpacking returns every target in order, with exactly the tokens before it', () => {
    fc.assert(
      fc.property(batch, (miniBatches) => {
        const unpacked = unpack(packForest(miniBatches));
        let first = 0;
        for (const [index, samples] of miniBatches.entries()) {
          expect(unpacked.get(index) ?? []).toEqual(targetsOf(samples, first));
          first += trainedOf(samples).length;
        }
      }),
      { numRuns: 300 },
    );
  });

  test('the nodes of a mini-batch form its prefix tree: one row for each different prefix of its samples', () => {
    fc.assert(
      fc.property(batch, (miniBatches) => {
        const forest = packForest(miniBatches);
        const nodes = nodesOf(forest);
        for (const [index, samples] of miniBatches.entries()) {
          const inputs = trainedOf(samples).map(inputOf);
          const beginnings = new Set(
            inputs.flatMap((tokens) => tokens.map((_, at) => tokens.slice(0, at + 1).join())),
          );
          const own = nodes.flatMap((node, at) => (node.miniBatch === index ? [{ ...node, at }] : []));
          expect(own.reduce((rows, { length }) => rows + length, 0)).toBe(beginnings.size);
          for (const { at } of own) {
            expect(beginnings.has(pathOf(forest, nodes, at).join())).toBe(true);
            // The tree is compressed: a node ends only where samples differ.
            const children = own.filter(({ parent }) => parent === at);
            expect(children.length).not.toBe(1);
            expect(new Set(children.map(({ first }) => forest.tokens[first])).size).toBe(children.length);
          }
          const roots = own.filter(({ parent }) => parent === -1);
          expect(new Set(roots.map(({ first }) => forest.tokens[first])).size).toBe(roots.length);
        }
      }),
      { numRuns: 200 },
    );
  });

  test('nodes are in depth-first order in their mini-batch, branches in the order in which samples reach them', () => {
    fc.assert(
      fc.property(batch, (miniBatches) => {
        const forest = packForest(miniBatches);
        const nodes = nodesOf(forest);
        expect(nodes.map((node) => node.miniBatch)).toEqual(
          nodes.map((node) => node.miniBatch).sort((a, b) => a - b),
        );
        const lineOf = (at: number): number[] =>
          at < 0 ? [-1] : [at, ...lineOf((nodes[at] as Node).parent)];
        const comers = nodes.map(({ length, miniBatch: place }, at) => {
          const path = pathOf(forest, nodes, at);
          return trainedOf(miniBatches[place] ?? [])
            .map(inputOf)
            .findIndex(
              (tokens) =>
                tokens.length > path.length - length &&
                path.slice(0, tokens.length).join() === tokens.slice(0, path.length).join(),
            );
        });
        for (const [at, { parent, length, miniBatch: place }] of nodes.entries()) {
          expect(length).toBeGreaterThan(0);
          // A node's parent is the node before it, or an ancestor of that node.
          expect(lineOf(at - 1)).toContain(parent);
          if (parent >= 0) expect(nodes[parent]?.miniBatch).toBe(place);
          const elder = nodes.findLastIndex(
            (node, other) => other < at && node.parent === parent && node.miniBatch === place,
          );
          if (elder >= 0) expect(comers[at]).toBeGreaterThan(comers[elder] as number);
        }
      }),
      { numRuns: 200 },
    );
  });

  test('samples without targets leave no trace', () => {
    fc.assert(
      fc.property(batch, sample, (miniBatches, { tokens }) => {
        const padded = miniBatches.map((samples) => samples.flatMap((one) => [{ tokens, targets: [] }, one]));
        expect(packForest(padded)).toEqual(packForest(miniBatches));
      }),
      { numRuns: 100 },
    );
  });

  test('the tree has the same nodes for any order of the samples; only their order changes', () => {
    const tree = (samples: SampleToPack[]): string[] => {
      const forest = packForest([samples]);
      const nodes = nodesOf(forest);
      return nodes.map((node, at) => `${pathOf(forest, nodes, at).join()} ${node.length}`).sort();
    };
    fc.assert(
      fc.property(miniBatch, (samples) => {
        expect(tree([...samples].reverse())).toEqual(tree(samples));
      }),
      { numRuns: 200 },
    );
  });

  test('targets of several samples may share one row', () => {
    const tokens = [7, 8, 9];
    const targets = [{ index: 1, advantage: 1, oldLogprob: -1 }];
    const both = packForest([
      [
        { tokens, targets },
        { tokens: [7, 5], targets },
        { tokens, targets: [...targets, { index: 2, advantage: -1, oldLogprob: -2 }] },
      ],
    ]);
    expect([...both.nodes]).toEqual([-1, 2, 0]);
    expect([...both.tokens]).toEqual([7, 8]);
    expect([...both.target_rows]).toEqual([0, 0, 0, 1]);
    expect([...both.target_tokens]).toEqual([8, 5, 8, 9]);
    expect([...both.target_samples]).toEqual([0, 1, 2, 2]);
  });

  test('targets that cannot be predicted, or out of order, are refused', () => {
    const target = (index: number) => ({ index, advantage: 1, oldLogprob: 0 });
    for (const targets of [[target(0)], [target(3)], [target(2), target(1)], [target(1), target(1)]])
      expect(() => packForest([[{ tokens: [1, 2, 3], targets }]])).toThrow(TypeError);
  });

  test('every token is looked at only a few times, however many samples there are', () => {
    let reads = 0;
    const watched = (tokens: number[]): number[] =>
      new Proxy(tokens, {
        get(target, key): unknown {
          reads += 1;
          return Reflect.get(target, key);
        },
      });
    // Samples of a group differ late, groups differ after the system text, and turns follow turns.
    const system = Array.from({ length: 200 }, (_, at) => at % 50);
    const samples = Array.from({ length: 64 }, (_, n): SampleToPack => {
      const prompt = Array.from({ length: 40 }, (_, at) => 100 + ((n >> 3) * 31 + at) * 7);
      const answer = Array.from({ length: 60 + (n % 9) }, (_, at) => (at < 20 ? at : n * at));
      const start = system.length + prompt.length;
      return {
        tokens: watched([...system, ...prompt, ...answer]),
        targets: answer.map((_, at) => ({ index: start + at, advantage: 1, oldLogprob: -1 })),
      };
    });
    const { tokens } = packForest([samples]);
    const total = samples.length * 300;
    expect(tokens.length).toBeLessThan(200 + 8 * 40 + 64 * 70);
    expect(reads).toBeLessThan(6 * total);
  });
});
