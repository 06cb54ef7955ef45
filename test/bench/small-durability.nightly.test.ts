// Small form of the benchmark that disturbs a run by kills.
import { expect, it } from 'vitest';
import { measureDisturbedRun } from '../../bench/durability/disturbed-run.js';
import { builtScripts } from '../support/repository.js';

it('the benchmark measures a run whose engine, node and orchestrator are killed', async () => {
  const figures = await measureDisturbedRun(
    {
      // The checkpoint of step 5 is written during an undisturbed step, so that a wait for it is measured. On a slow machine a kill is
      // noticed several steps later, so there are steps after the last kill.
      ...{ steps: 17, struck: [1, 3, 7], victims: ['engine', 'node', 'orchestrator'], seed: 1 },
      shape: { hidden_size: 64, layers: 2, groups: 2, samples: 16 },
    },
    (message) => console.log(message),
    builtScripts,
  );
  console.log(JSON.stringify(figures));
  expect(figures.steps).toBe(16);
  expect(figures.disturbed_steps).toBeGreaterThanOrEqual(1);
  expect(figures.turns_again_max).toBeLessThanOrEqual(1);
  // Steps that take less than ten seconds are not each saved: all steps since the last save are replayed.
  expect(figures.updates_again_max - figures.updates_replayed_max).toBeLessThanOrEqual(1);
  // The benchmark's bars are 1 s and 2 s on an idle machine. Tests share their machine.
  expect(figures.engine_detection_seconds).toBeGreaterThan(0);
  expect(figures.engine_detection_seconds).toBeLessThan(10);
  expect(figures.worker_detection_seconds).toBeGreaterThan(0.1);
  expect(figures.worker_detection_seconds).toBeLessThan(60);
  expect(figures.stall_share).toBeLessThan(1);
});
