import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type GroupToPack, packForest } from '../../src/rl/packing.js';
import type { BatchArrays } from '../../src/spec/batch.js';

interface Target {
  /** Everything the target is predicted from. */
  context: number[];
  token: number;
  advantage: number;
  oldLogprob: number;
}

/** Reads a forest as the engine does: a row sees its ancestors' tokens and its own up to itself. */
function unpack(forest: BatchArrays): Map<number, Target[]> {
  const nodes: { parent: number; first: number; length: number }[] = [];
  const nodeOfRow: number[] = [];
  for (let node = 0, first = 0; node * 4 < forest.nodes.length; node++) {
    const length = forest.nodes[node * 4 + 1] as number;
    nodes.push({ parent: forest.nodes[node * 4] as number, first, length });
    for (let i = 0; i < length; i++) nodeOfRow.push(node);
    first += length;
  }
  const contextOf = (row: number): number[] => {
    const node = nodes[nodeOfRow[row] as number] as (typeof nodes)[number];
    const own = [...forest.tokens.slice(node.first, row + 1)];
    const parent = nodes[node.parent];
    return parent ? [...contextOf(parent.first + parent.length - 1), ...own] : own;
  };
  const byMiniBatch = new Map<number, Target[]>();
  for (const [index, row] of forest.target_rows.entries()) {
    const miniBatch = forest.target_shards[index * 2] as number;
    const list = byMiniBatch.get(miniBatch) ?? [];
    byMiniBatch.set(miniBatch, list);
    list.push({
      context: contextOf(row),
      token: forest.target_tokens[index] as number,
      advantage: forest.target_advantages[index] as number,
      oldLogprob: forest.target_old_logprobs[index] as number,
    });
  }
  return byMiniBatch;
}

function targetsOf(groups: readonly GroupToPack[]): Target[] {
  return groups.flatMap(({ prompt, samples }) =>
    samples.flatMap(({ tokens, targets }) =>
      targets.map(({ index, advantage, oldLogprob }) => ({
        context: [...prompt, ...tokens.slice(0, index)],
        token: tokens[index] as number,
        advantage: Math.fround(advantage),
        oldLogprob: Math.fround(oldLogprob),
      })),
    ),
  );
}

const sorted = (targets: readonly Target[]): string[] =>
  targets.map((target) => JSON.stringify(target)).sort();

const token = fc.integer({ min: 0, max: 3 });
const sample = fc
  .array(fc.record({ token, trained: fc.boolean(), advantage: fc.integer({ min: -4, max: 4 }) }), {
    minLength: 1,
    maxLength: 9,
  })
  .map((items) => ({
    tokens: items.map((item) => item.token),
    targets: items.flatMap(({ trained, advantage }, index) =>
      trained ? [{ index, advantage, oldLogprob: -index / 8 }] : [],
    ),
  }));
const group = fc.record({
  prefixKey: fc.constantFrom('tracker', 'booking', null),
  // A long common beginning now and then, so that families do share.
  prompt: fc
    .tuple(fc.constantFrom(0, 7, 12, 40), fc.array(token, { minLength: 1, maxLength: 6 }))
    .map(([shared, own]) => [...new Array<number>(shared).fill(1), ...own]),
  samples: fc.array(sample, { minLength: 1, maxLength: 4 }),
});
const batch = fc.array(fc.array(group, { maxLength: 40 }), { minLength: 1, maxLength: 3 });

describe('packing', () => {
  test('unpacking gives back every target with exactly the tokens before it', () => {
    fc.assert(
      fc.property(batch, (miniBatches) => {
        const unpacked = unpack(packForest(miniBatches));
        for (const [index, groups] of miniBatches.entries()) {
          expect(sorted(unpacked.get(index) ?? [])).toEqual(sorted(targetsOf(groups)));
        }
      }),
      { numRuns: 200 },
    );
  });

  test('nodes and targets are in order of (mini-batch, shard), and a parent stands before its children beside them', () => {
    fc.assert(
      fc.property(batch, (miniBatches) => {
        const { nodes, target_shards } = packForest(miniBatches);
        const places = (values: Int32Array, width: number, at: number) =>
          Array.from(
            { length: values.length / width },
            (_, i) => (values[i * width + at] as number) * 8 + (values[i * width + at + 1] as number),
          );
        const nodePlaces = places(nodes, 4, 2);
        const targetPlaces = places(target_shards, 2, 0);
        expect(nodePlaces).toEqual([...nodePlaces].sort((a, b) => a - b));
        expect(targetPlaces).toEqual([...targetPlaces].sort((a, b) => a - b));
        for (const [node, place] of nodePlaces.entries()) {
          const parent = nodes[node * 4] as number;
          expect(nodes[node * 4 + 1]).toBeGreaterThan(0);
          if (parent >= 0) expect([parent < node, nodePlaces[parent]]).toEqual([true, place]);
        }
      }),
      { numRuns: 100 },
    );
  });

  test('shards of a full step are balanced, and repeat few beginnings', () => {
    const filled = (length: number, value: number) => new Array<number>(length).fill(value);
    const groups = Array.from({ length: 32 }, (_, slot): GroupToPack => ({
      prefixKey: slot % 2 === 0 ? 'tracker' : 'booking',
      prompt: [...filled(120, slot % 2), ...filled(20, slot + 2)],
      samples: Array.from({ length: 8 }, (_, i) => ({
        tokens: filled(30 + ((slot * 7 + i * 3) % 40), i),
        targets: [{ index: 29, advantage: 1, oldLogprob: -1 }],
      })),
    }));
    const { nodes } = packForest([groups]);
    const tokens = filled(8, 0);
    let beginnings = 0;
    for (let i = 0; i < nodes.length; i += 4) {
      const shard = nodes[i + 3] as number;
      tokens[shard] = (tokens[shard] ?? 0) + (nodes[i + 1] as number);
      if (nodes[i] === -1) beginnings += 1;
    }
    const used = tokens.filter((count) => count > 0);
    expect(Math.max(...used) / Math.min(...used)).toBeLessThan(1.7);
    expect(beginnings).toBeLessThanOrEqual(used.length + 1);
  });
});
