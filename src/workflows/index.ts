// All workflows of the orchestrator worker's bundle.
export { nodePool } from './node-pool.js';
export { trainingRun } from './training-run.js';
