// The workflows of a worker that serves sweeps.
export { nodePool } from '../../../src/workflows/node-pool.js';
export { evalSweep } from '../../../src/sweeps/eval-sweep.js';
