// Doctored batches, which contradict their plan, episodes or update.
import { expect } from 'vitest';
import { decodeBatchFile, encodeBatchFile } from '../../../../src/store/files/batch-file.js';
import { stepIdOf } from '../../../../src/store/records/canonical.js';
import { sha256Hex } from '../../../../src/base/sha256.js';
import * as layout from '../../../../src/store/record-keys.js';
import { readUpdate } from '../../../../src/store/runs/run-records.js';
import {
  type Doctored,
  type Doctoring,
  learned,
  otherDigest,
  run,
  supervised,
  update,
} from '../doctored-run.js';
import { unknown } from '../../evaluated.js';

/** Seals a changed batch and lets the step's update name it: all digests of the chain agree, only the batch's content is wrong. */
async function reseal(store: Doctored, step: number, change: (batch: Batch) => void): Promise<void> {
  const key = layout.batchKey(run, step);
  const batch = decodeBatchFile(store.bytes(key), key);
  change(batch);
  const bytes = encodeBatchFile(batch.arrays, batch.identity);
  store.write(key, bytes);
  await store.edit(update(step), 'update', ({ identity }) => {
    identity.batch = sha256Hex(bytes);
    identity.step_id = stepIdOf(identity.previous_state, identity.batch, identity.plan);
  });
}
type Batch = ReturnType<typeof decodeBatchFile>;

const episodeAt = (step: number, { slot, sample }: { slot: number; sample: number }): string =>
  layout.episodeKey(run, step, slot, sample);

/** The first sample of a group in which outcomes differ. */
async function learningSample(store: Doctored, step: number): Promise<{ slot: number; sample: number }> {
  const { outcomes } = (await readUpdate(store.store, run, step)).identity;
  const slot = outcomes.findIndex((group) => new Set(group).size > 1);
  expect(slot, 'a group with a signal').toBeGreaterThanOrEqual(0);
  return { slot, sample: 0 };
}

export const batches: readonly Doctoring[] = [
  {
    what: "a batch's advantages are twice what its outcomes give",
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'target_advantages[0]',
    doctor: (store) =>
      reseal(store, learned, ({ arrays }) => {
        for (const [index, value] of arrays.target_advantages.entries())
          arrays.target_advantages[index] = 2 * value;
      }),
  },
  {
    what: "a batch's old log-probs do not match its episodes",
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'target_old_logprobs[1]',
    doctor: (store) =>
      reseal(store, learned, ({ arrays }) => {
        arrays.target_old_logprobs![1] = -20;
      }),
  },
  {
    what: "a batch's tokens do not match its episodes",
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'tokens[3]',
    doctor: (store) =>
      reseal(store, learned, ({ arrays }) => {
        arrays.tokens[3] = (arrays.tokens[3] as number) + 1;
      }),
  },
  {
    what: "a batch's metrics do not match its episodes",
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'metrics.reward/avg_raw_reward',
    doctor: (store) =>
      reseal(store, learned, ({ identity }) => {
        identity.metrics['reward/avg_raw_reward'] = 0.9;
      }),
  },
  {
    what: 'a supervised batch has other target tokens than its demonstrations',
    rule: 'R10',
    at: () => layout.batchKey(run, supervised),
    names: 'target_tokens[2]',
    doctor: (store) =>
      reseal(store, supervised, ({ arrays }) => {
        arrays.target_tokens[2] = (arrays.target_tokens[2] as number) + 1;
      }),
  },
  {
    what: 'two batches were exchanged',
    rule: 'R10',
    at: () => layout.batchKey(run, 3),
    doctor: (store) => {
      const [a, b] = [store.bytes(layout.batchKey(run, 2)), store.bytes(layout.batchKey(run, 3))];
      store.write(layout.batchKey(run, 2), b);
      store.write(layout.batchKey(run, 3), a);
    },
  },
  {
    what: 'a batch is missing',
    rule: 'R10',
    at: () => layout.batchKey(run, 2),
    doctor: (store) => store.remove(layout.batchKey(run, 2)),
  },
  {
    what: 'the targets of an unknown sample are in the batch',
    rule: 'R25',
    at: () => layout.batchKey(run, 2),
    doctor: async (store) => {
      const sample = await learningSample(store, 2);
      await store.edit(episodeAt(2, sample), 'episode', (record) => (record.outcome = unknown));
    },
  },
  ...(
    [
      { what: 'the wrong step', names: 'it says step', change: (batch) => (batch.step += 1) },
      { what: 'the wrong plan', names: 'another plan', change: (batch) => (batch.plan = otherDigest) },
      {
        what: 'the wrong state before it',
        names: 'another state',
        change: (batch) => (batch.previous_state = otherDigest),
      },
      {
        what: 'the wrong outcomes',
        names: 'its outcomes are not',
        change: (batch) => batch.outcomes.reverse(),
      },
      { what: 'the wrong inputs', names: 'other inputs', change: (batch) => (batch.inputs = otherDigest) },
    ] satisfies { what: string; names: string; change: (batch: Batch['identity']) => void }[]
  ).map(({ what, names, change }): Doctoring => ({
    ...{ what: `a batch names ${what}`, names, rule: 'R10' },
    at: () => layout.batchKey(run, learned),
    doctor: (store) => reseal(store, learned, ({ identity }) => void change(identity)),
  })),
  {
    what: 'an update is recorded as without a signal, but its batch has targets',
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'it has targets',
    doctor: (store) =>
      store.edit(update(learned), 'update', ({ identity }) => {
        identity.applied = { reason: 'no_signal' };
        identity.state = identity.previous_state;
      }),
  },
  {
    what: 'a batch has no targets, but its update was applied',
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'applied without targets',
    doctor: (store) =>
      reseal(store, learned, ({ arrays, identity }) => {
        identity.loss_tokens.fill(0);
        const all = arrays as unknown as Record<string, Float32Array>;
        for (const name of Object.keys(all))
          if (name.startsWith('target_')) all[name] = all[name]!.slice(0, 0);
      }),
  },
  {
    what: 'a batch has fewer mini-batches than its plan',
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'other mini-batches',
    doctor: (store) =>
      store.edit(layout.planKey(run, learned), 'plan', ({ optimizer }) =>
        optimizer.learning_rates.push(1e-3),
      ),
  },
];
