// From batches to a Tinker server's sequences: the prefix tree is taken apart again, and the weights follow the plan's reduction.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chunksOf } from '../../../src/engine/tinker/passes.js';
import { packForest, type SampleToPack } from '../../../src/rl/packing.js';
import type { LossPlan } from '../../../src/spec/records/loss-plan.js';

const regular: LossPlan = {
  ...{ kind: 'regular', reduction: 'token_mean' },
  ...{ eps_clip_low: 0.2, eps_clip_high: 0.28 },
};
const unlimited = { sequences: 1_000, tokens: 100_000 };

/** Few different tokens, so that samples share beginnings. */
const sample: fc.Arbitrary<SampleToPack> = fc
  .array(fc.integer({ min: 0, max: 2 }), { minLength: 2, maxLength: 9 })
  .chain((tokens) =>
    fc
      .subarray(
        Array.from({ length: tokens.length - 1 }, (_, index) => index + 1),
        { minLength: 1 },
      )
      .map((indices) => ({
        tokens,
        targets: indices.map((index) => ({ index, advantage: index / 4, oldLogprob: -index / 8 })),
      })),
  );

/** The datum that a sample must become. It ends with the sample's last target. */
function expected({ tokens, targets }: SampleToPack, scale: number) {
  const inputs = targets.at(-1)!.index;
  const at = (of: (target: SampleToPack['targets'][number]) => number): number[] =>
    Array.from({ length: inputs }, (_, place) => {
      const target = targets.find(({ index }) => index === place + 1);
      return target ? of(target) : 0;
    });
  return {
    tokens: tokens.slice(0, inputs),
    targets: tokens.slice(1, inputs + 1),
    weights: at(() => 1),
    logprobs: at(({ oldLogprob }) => oldLogprob),
    advantages: at(({ advantage }) => advantage * scale),
  };
}

describe('the sequences of a batch', () => {
  it('are its samples again, in their order and mini-batches', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(sample, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 3 }),
        (batches) => {
          const made = chunksOf(packForest(batches), regular, 'sum', unlimited);
          expect(made).toHaveLength(batches.length);
          for (const [index, samples] of batches.entries()) {
            const all = samples.reduce((sum, { targets }) => sum + targets.length, 0);
            const found = made[index]!.flat().map(({ tokens, inputs }) => ({
              tokens,
              targets: inputs['target_tokens']!.data,
              weights: inputs['weights']!.data,
              logprobs: inputs['logprobs']!.data,
              advantages: inputs['advantages']!.data,
            }));
            expect(found).toEqual(samples.map((one) => expected(one, 1 / all)));
          }
        },
      ),
    );
  });

  it.each(['token_mean', 'sequence_mean', 'seq_mean_token_sum_norm'] as const)(
    'add up to the plan’s %s, on a server that sums and on one that takes means',
    (reduction) => {
      const lengths = [3, 5, 2];
      const samples = lengths.map((length, index) => ({
        tokens: Array.from({ length: length + 1 }, (_, at) => 10 * index + at),
        targets: Array.from({ length }, (_, at) => ({ index: at + 1, advantage: 1, oldLogprob: -1 })),
      }));
      const loss: LossPlan = { ...regular, reduction, max_seq_len: 7 };
      const sums = (served: 'sum' | 'sequence_mean'): number[] =>
        chunksOf(packForest([samples]), loss, served, unlimited)
          .flat(2)
          .map(({ inputs }) => inputs['advantages']!.data.reduce((sum, one) => sum + one, 0));
      // Each token's loss is 1 here: what is left is its share in the plan's sum.
      const wanted = {
        token_mean: lengths.map((length) => length / 10),
        sequence_mean: lengths.map(() => 1 / 3),
        seq_mean_token_sum_norm: lengths.map((length) => length / 21),
      }[reduction];
      const close = (found: number[]): void =>
        found.forEach((value, index) => expect(value).toBeCloseTo(wanted[index]!, 12));
      close(sums('sum'));
      close(sums('sequence_mean').map((sum, index) => sum / lengths[index]! / lengths.length));
    },
  );

  it('weigh the advantages where the plan caps the ratio of the trainer’s probabilities to the sampled ones', () => {
    const tokens = [5, 6, 7, 8];
    const targets = [1, 2, 3].map((index) => ({ index, advantage: 2, oldLogprob: -1 }));
    const loss: LossPlan = { ...regular, tis_cap: 1.5 };
    const rescored = Float32Array.from([-1, -1.5, -0.25]);
    const [datum] = chunksOf(packForest([[{ tokens, targets }]]), loss, 'sum', unlimited, rescored).flat(2);
    const weights = [1, Math.exp(-0.5), 1.5];
    datum!.inputs['advantages']!.data.forEach((advantage, at) =>
      expect(advantage).toBeCloseTo((2 * weights[at]!) / 3, 6),
    );
    expect(datum!.inputs['logprobs']!.data).toEqual([-1, -1.5, -0.25]);
  });

  it('fill requests up to their limits, and one that fits in none is refused', () => {
    const samples = [4, 4, 4, 6].map((length, index) => ({
      tokens: Array.from({ length: length + 1 }, (_, at) => 10 * index + at),
      targets: [{ index: length, advantage: 1, oldLogprob: -1 }],
    }));
    const forest = packForest([samples]);
    const sizes = (limits: { sequences: number; tokens: number }): number[] =>
      chunksOf(forest, regular, 'sum', limits)[0]!.map((chunk) => chunk.length);
    expect(sizes({ sequences: 3, tokens: 100 })).toEqual([3, 1]);
    expect(sizes({ sequences: 9, tokens: 8 })).toEqual([2, 1, 1]);
    expect(() => sizes({ sequences: 9, tokens: 5 })).toThrow('a sequence of 6 tokens is longer than');
  });
});
