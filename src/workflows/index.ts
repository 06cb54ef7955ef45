// All workflows of the orchestrator worker's bundle.
export { evalSweep } from './eval-sweep.js';
export { nodePool } from './node-pool.js';
export { trainingRun } from './training-run.js';
