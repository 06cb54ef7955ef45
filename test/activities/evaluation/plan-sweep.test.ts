// If a sweep's reference run does not exist, the error says which field of the sweep file named it, and which runs exist.
import { beforeAll, expect, test } from 'vitest';
import { DatasetCache } from '../../../src/data/dataset-cache.js';
import { planSweep } from '../../../src/activities/evaluation/plan-sweep.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { parseSweepSpec } from '../../../src/sweeps/sweep-input.js';
import { makeRunIn } from '../../store/made-runs.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const folder = scratchFolder();
let store: ObjectStore;
beforeAll(async () => {
  store = await openDirectoryStore(folder);
  await makeRunIn(store, 'tiny', { steps: 1, checkpoints: [1] });
});

const checkpoints = [{ run: 'nobody' }];
const suites = [{ name: 'final' }];

test.each([
  { named: { data_of: 'nobody', checkpoints: [{ run: 'tiny' }] }, path: 'data_of', fix: 'it has tiny' },
  {
    named: { baseline: { run: 'nobody', step: 0 }, checkpoints },
    path: 'baseline.run',
    fix: 'it has tiny',
  },
  { named: { checkpoints }, path: 'checkpoints[0].run', fix: 'it has tiny' },
  { named: { data_of: 'tinny', checkpoints }, path: 'data_of', fix: 'did you mean tiny?' },
])('$path names a run that does not exist: $fix', async ({ named, path, fix }) => {
  const spec = parseSweepSpec({ name: 's', suites, ...named });
  const run = named.data_of ?? 'nobody';
  await expect(
    planSweep({ store, datasets: new DatasetCache(store) }, { spec, sweep: 'longhaul/s' }),
  ).rejects.toMatchObject({
    name: 'InvalidSpec',
    message: expect.stringContaining(
      `${path}: the suites are those of run ${run}, which is not in ${store.address}; ${fix}`,
    ) as string,
  });
});
