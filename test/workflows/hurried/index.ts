// Sweeps with very short turns and windows.
import { sweeping } from '../../../src/workflows/policies.js';

Object.assign(sweeping, { windowPairs: 2, turnMs: 1 });

export { nodePool } from '../../../src/workflows/pool/node-pool.js';
export { evalSweep } from '../../../src/workflows/sweep/eval-sweep.js';
