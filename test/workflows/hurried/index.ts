// The real workflows with short times.
import { placing, sweeping, watching } from '../../../src/workflows/policies.js';
import { hurriedPlacing, hurriedSweeping, hurriedWatching } from './times.js';

Object.assign(watching, hurriedWatching);
Object.assign(placing, hurriedPlacing);
Object.assign(sweeping, hurriedSweeping);

export * from '../../../src/workflows/index.js';
