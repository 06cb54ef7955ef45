// collectGarbage: deletes what the run no longer needs, while the run continues (R23).
import { setTimeout as delay } from 'node:timers/promises';
import type { CollectedGarbage, StepReference } from '../contracts.js';
import type { OpenedDeps } from '../orchestrator-deps.js';
import { currentScope } from '../attempt/scope.js';
import { retentionInForce } from '../../store/collection/retention.js';
import { collect } from '../../store/collection/collection.js';
import { checkOwner } from '../../store/runs/owners.js';
import { readRun } from '../../store/runs/run-records.js';

/**
 * Wait between writing the list of deletions and the first deletion. A fork that begins later loses nothing: it recomputes the states it
 * needs.
 */
const graceMs = 10_000;

export async function collectGarbage(
  deps: OpenedDeps,
  { run, owner }: StepReference,
): Promise<CollectedGarbage> {
  const { store } = deps;
  const { signal } = currentScope();
  await checkOwner(store, run, owner);
  const { spec } = await readRun(store, run);
  const collected = await collect(store, run, {
    retention: retentionInForce(spec),
    onlyNewSteps: true,
    graceMs,
    by: `the run's orchestrator, pid ${deps.life.process.pid}`,
    wait: (ms) => delay(ms, undefined, { signal }),
  });
  for (const { step, problem } of collected.left)
    deps.log(
      `the garbage collection of ${run} skipped data of step ${step}: ${problem}. \`longhaul audit ${run}\` says more`,
    );
  const { n, checkpoints, episodes, freed } = collected;
  return { n, checkpoints: checkpoints.length, steps: episodes.length, freed };
}
