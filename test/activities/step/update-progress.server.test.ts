// A long update reports progress by shards, whether it is applied or replayed. It can be stopped.
import { CancelledFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { describe, expect, it } from 'vitest';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { updateKey } from '../../../src/store/record-keys.js';
import { lastSftStep, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';

useHarness();

interface Shards {
  done: number;
  total: number;
}

/** Expects that the reported shards only increase, up to the total. */
function expectAll(shards: readonly Shards[]): void {
  const total = shards.at(-1)?.total ?? 0;
  expect(shards.length).toBeGreaterThan(1);
  expect(shards.at(-1)).toEqual({ done: total, total });
  for (const [at, { done }] of shards.entries()) expect(done).toBeGreaterThan(shards[at - 1]?.done ?? 0);
}

describe('an update whose attempt must stop', () => {
  it('is cancelled in the engine, leaves the state unchanged, and is applied once by the next attempt', async () => {
    // The update must have enough mini-batches to run long after its first progress report.
    const warmStart = harness.spec['warm_start'] as object[];
    await harness.open({
      ...harness.spec,
      warm_start: [{ ...warmStart[0], updates: 400, mini_batches_per_step: 400 }],
    });
    await harness.advance(0);
    const { holder } = harness.node;
    const { state: base } = (await holder.engine.held())!;
    const reference = harness.reference(await harness.plan(1));
    const { update } = holder.engine;
    const environment = new MockActivityEnvironment({ activityId: 'update' });
    holder.engine.update = (request, onProgress, signal) =>
      update(
        request,
        (progress) => {
          environment.cancel('WORKER_SHUTDOWN');
          onProgress?.(progress);
        },
        signal,
      );
    const { updatePolicy: activity } = createNodeActivities(harness.node);
    const cancelled = environment.run(() => activity(reference));
    await expect(cancelled).rejects.toBeInstanceOf(CancelledFailure);
    expect(await holder.engine.held()).toMatchObject({ state: base, lastStepId: null });
    expect(await harness.store.head(updateKey(run, 1))).toBeNull();
    holder.engine.update = update;
    const committed = await harness.attempt('update', () => activity(reference), 2);
    expect(committed.state).not.toBe(base);
    expect((await holder.engine.stats())['updates']).toBe(1);
  });
});

describe('the progress of an update', () => {
  it('is reported shard by shard when it is applied', async () => {
    await harness.advance(0);
    const reference = harness.reference(await harness.plan(1));
    const told: unknown[] = [];
    await harness.attempt('update', () => updatePolicy(harness.node, reference), 1, told);
    const updates = (told as { verb?: string; shards?: Shards }[]).filter(({ verb }) => verb === 'update');
    expectAll(updates.flatMap(({ shards }) => shards ?? []));
  });

  it('is reported shard by shard when a state is restored', async () => {
    await harness.advance(lastSftStep);
    const told: object[] = [];
    const attempt = {
      signal: AbortSignal.timeout(20_000),
      progress: (details: unknown) => told.push(details as object),
    };
    await harness
      .secondNode()
      .holder.withState(run, lastSftStep, 'visitor', () => Promise.resolve(), attempt);
    const replays = told as { restoring?: number; replayed?: number; of?: number; shards?: Shards }[];
    for (const replayed of [0, 1]) {
      const own = replays.filter((one) => one.replayed === replayed && one.shards !== undefined);
      for (const one of own) expect(one).toMatchObject({ restoring: lastSftStep, of: lastSftStep });
      expectAll(own.flatMap(({ shards }) => shards ?? []));
    }
  });
});
