// The real workflows with short times.
import { placing, sweeping, poolTimes } from '../../../src/workflows/policies.js';
import { hurriedPlacing, hurriedSweeping, hurriedPoolTimes } from './times.js';

Object.assign(poolTimes, hurriedPoolTimes);
Object.assign(placing, hurriedPlacing);
Object.assign(sweeping, hurriedSweeping);

export * from '../../../src/workflows/index.js';
