// Small forms of the benchmarks of many steps and of many runs. Memory has no bar here: during a few hundred steps a process is still
// warming up.
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { measureLongRun } from '../../bench/scale/long-run.js';
import { measureManyRuns } from '../../bench/scale/many-runs.js';
import { builtScripts } from '../support/repository.js';

describe('a run of 300 steps', () => {
  it('completes and passes its audit, also when the workflow continues as new', async () => {
    const figures = await measureLongRun({
      ...{ steps: 300, early: [30, 100], late: [200, 300], deadlineMs: 400_000, scripts: builtScripts },
    });
    console.log(JSON.stringify(figures));
    expect(figures.executions).toBeGreaterThanOrEqual(2);
    expect(figures.events_max).toBeLessThan(10_000);
    expect(figures.engine_growth).toBeLessThan(0.05);
  });
});

describe('six runs at once on one orchestrator', () => {
  it('all finish, and every step follows from the step before', async () => {
    const node = fileURLToPath(new URL('fixtures/instant-node.mjs', import.meta.url));
    const figures = await measureManyRuns({
      ...{ runs: 6, steps: 8, workMs: 500, deadlineMs: 150_000, scripts: { ...builtScripts, node } },
    });
    console.log(JSON.stringify(figures));
    expect(figures).toMatchObject({ finished: 6, steps: 48, broken_links: 0 });
    expect(figures.orchestration_ms_p50).toBeGreaterThan(0);
    // The benchmark's bar is 500 ms on an idle machine. Tests share their machine.
    expect(figures.orchestration_ms_p95).toBeLessThan(2_000);
  });
});
