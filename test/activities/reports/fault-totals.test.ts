// The cost of faults is sent with a plan. A long count delays at most one plan and is started only once.
import { setImmediate } from 'node:timers/promises';
import { expect, it, vi } from 'vitest';
import type { StepReference } from '../../../src/activities/contracts.js';
import type { OrchestratorDeps } from '../../../src/activities/orchestrator-deps.js';
import { withFaultTotals } from '../../../src/activities/reports/fault-totals.js';
import { memoryStore } from '../../workers/follower/memory-store.js';
import { recordsOf, writeAll } from '../../workers/follower/written-run.js';
import { readRun } from '../../../src/store/runs/run-records.js';

const made = { run: 'long', steps: 6, evalInterval: 6 };

it('the cost of faults is counted by one reader at a time, and other plans do not wait for the count', async () => {
  const store = memoryStore();
  await writeAll(store, recordsOf(made));
  const record = await readRun(store, made.run);
  let reads = 0;
  let letGo: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (letGo = resolve));
  store.beforeRead = () => {
    reads += 1;
    return held;
  };
  const deps = { store, runs: { get: () => Promise.resolve({ record }) } } as unknown as OrchestratorDeps;
  const plan = withFaultTotals((_, { step }: StepReference) => Promise.resolve({ planned: step }));
  expect(await plan(deps, { run: made.run, owner: 1, step: 6 })).toEqual({ planned: 6 });
  const before = reads;
  expect(before).toBeGreaterThan(0);
  let other: unknown;
  void plan(deps, { run: made.run, owner: 1, step: 7 }).then((planned) => (other = planned));
  // A plan that does not wait for the count is written before the next turn of the event loop.
  await setImmediate();
  expect(other).toEqual({ planned: 7 });
  expect(reads).toBe(before);
  letGo();
  await vi.waitFor(
    async () =>
      expect(await plan(deps, { run: made.run, owner: 1, step: 7 })).toMatchObject({
        planned: 7,
        faults: { 'ft/wall_seconds': expect.any(Number) as number },
      }),
    { timeout: 120_000 },
  );
});
