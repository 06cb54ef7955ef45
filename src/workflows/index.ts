// All workflows of the orchestrator worker's bundle.
export { evalSweep } from './sweep/eval-sweep.js';
export { prepareDataset } from './data/prepare-dataset.js';
export { nodePool } from './pool/node-pool.js';
export { trainingRun } from './run/training-run.js';
