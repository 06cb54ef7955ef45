// The audit of a step's rescored log-probs, on the records of an invented run. Its other records are not sound, so only what concerns the
// log-probs is compared.
import { beforeEach, describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import type { Violation } from '../../../src/store/audit/chain-audit.js';
import { foldBatch } from '../../../src/store/runs/stored-batch.js';
import { encodeRescored } from '../../../src/store/runs/rescored-logprobs.js';
import { sha256Hex } from '../../../src/base/sha256.js';
import { updateKey } from '../../../src/store/record-keys.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { memoryStore, type MemoryStore } from '../../workers/follower/memory-store.js';
import {
  batch,
  flipped,
  key,
  makeCommitted,
  makeSealed,
  replace,
  run,
  step,
  updateOf,
} from '../rescored-step.js';

describe('the audit of rescored log-probs', () => {
  let store: MemoryStore;
  beforeEach(() => void (store = memoryStore()));

  const violations = async (): Promise<Violation[]> =>
    (await auditRun(store, run)).violations.filter((one) => one.key === key || one.rule === 'R34');
  const violation = (rule: string, problem: string, at = key) => ({
    ...{ rule, key: at },
    problem: expect.stringContaining(problem) as string,
  });

  it('has nothing to say of those that the update names, also once the batch is compressed', async () => {
    await makeCommitted(store);
    expect(await violations()).toEqual([]);
    await foldBatch(store, run, step, batch);
    expect(await violations()).toEqual([]);
  });

  it('finds a flipped bit', async () => {
    await makeCommitted(store);
    await replace(store, key, flipped());
    expect(await violations()).toEqual([violation('R34', 'its sha256 is not the one in update.json')]);
  });

  it('finds that they are missing', async () => {
    await makeCommitted(store);
    await store.delete(key);
    expect(await violations()).toEqual([violation('R34', 'are missing')]);
  });

  it('finds that they are not as many as the batch’s targets, even if the update names them', async () => {
    const bytes = encodeRescored(batch, Float32Array.from([-1, -2]));
    await makeSealed(store);
    await store.create(key, bytes);
    await store.create(updateKey(run, step), await encodeRecord('update', updateOf(sha256Hex(bytes))));
    expect(await violations()).toEqual([violation('R34', 'it has 2 log-probs, and the batch has 3 targets')]);
  });

  it('finds an update that names some without having been applied', async () => {
    const { sha256 } = await makeCommitted(store);
    const update = updateOf(sha256);
    update.identity.applied = { reason: 'non_finite' };
    const bytes = await encodeRecord('update', update);
    await replace(store, updateKey(run, step), () => bytes);
    expect(await violations()).toEqual([violation('R34', 'the step needs none', updateKey(run, step))]);
  });
});
