// Follows a run with real trackers until this process is killed, or until the run is over and everything is delivered. Arguments: the
// store's root; the folder for trackers and notes; a file that exists once the run is over; and the Python that has W&B's client (if
// absent, metrics.jsonl and TensorBoard are used).
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { follow, type FollowerOptions } from '../../../../src/workers/follower/follower.js';
import type { PointSink } from '../../../../src/integrations/tracking/metric-point.js';
import { createMetricsJsonl } from '../../../../src/integrations/tracking/metrics-jsonl.js';
import { createTensorBoard } from '../../../../src/integrations/tracking/tensorboard/tensorboard-sink.js';
import { createWandb } from '../../../../src/integrations/tracking/wandb/wandb-sink.js';
import { openDirectoryStore } from '../../../../src/store/objects/directory-store.js';
import { timeOf } from '../written-run.js';

const [root = '', folder = '', overFile = '', python] = process.argv.slice(2);
const wandb = (interpreter: string): PointSink =>
  createWandb({
    run: 'tiny',
    project: 'tests',
    mode: 'offline',
    folder: join(folder, 'wandb'),
    python: interpreter,
    apiKey: () => undefined,
  });

const sinks = python
  ? [wandb(python)]
  : [
      createMetricsJsonl(join(folder, 'metrics.jsonl')),
      createTensorBoard(join(folder, 'tensorboard'), timeOf(0)),
    ];
const options = {
  store: await openDirectoryStore(root),
  run: 'tiny',
  folder: join(folder, 'notes'),
  isOver: () => existsSync(overFile),
  signal: new AbortController().signal,
  times: { pollMs: [5, 20], retryMs: [50, 200] },
  onDelivered: (points) => console.log(`delivered ${points.length}`),
} satisfies Omit<FollowerOptions, 'sink'>;
const following = Promise.all(sinks.map((sink) => follow({ ...options, sink })));
console.log('following');
console.log(JSON.stringify(await following));
