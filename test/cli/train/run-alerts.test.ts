// The alerts that `status` and a run's end show. They cover the whole run, however long it is. If the store hangs, the commands show none
// and say so.
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { alertsWithin } from '../../../src/cli/train/run-alerts.js';
import { type MemoryStore, memoryStore } from '../../workers/follower/memory-store.js';
import { recordsOf, writeAll } from '../../workers/follower/written-run.js';

const [run, steps] = ['long', 3_000];

describe('the alerts of a run of 3,000 steps', () => {
  let store: MemoryStore;
  beforeAll(async () => {
    store = memoryStore();
    const metrics = (step: number) => ({
      'reward/avg_raw_reward': step < 200 ? 0.6 : 0,
      'policy/grad_norm': 1,
    });
    await writeAll(store, recordsOf({ run, steps, evalInterval: steps, metrics }));
  });
  afterEach(() => {
    store.beforeRead = () => Promise.resolve();
    vi.restoreAllMocks();
  });
  const alerts = (withinMs?: number) => alertsWithin(() => Promise.resolve(store), run, null, withinMs);

  it('include an alert that began at step 203 and still holds', async () => {
    expect((await alerts()).map(({ name, steps: at, holds }) => [name, at, holds])).toEqual([
      ['reward_collapsed', [203], true],
    ]);
  });

  it('are complete even if reading all steps takes longer than the time limit for one answer', async () => {
    let reads = 0;
    store.beforeRead = () => (++reads % 256 === 0 ? delay(400) : Promise.resolve());
    const begun = performance.now();
    expect(await alerts(3_000)).toHaveLength(1);
    expect(performance.now() - begun).toBeGreaterThan(3_000);
  });

  it('are reported as unknown if the store stops answering', async () => {
    const said = vi.spyOn(console, 'error').mockImplementation(() => undefined);
    let reads = 0;
    store.beforeRead = () => (++reads > 1_000 ? new Promise(() => undefined) : Promise.resolve());
    expect(await alerts(300)).toEqual([]);
    expect(said).toHaveBeenCalledWith(
      'the alerts of long cannot be read: waited 0.3 s for the store without success',
    );
  });
});
