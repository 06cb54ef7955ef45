// Prepares one dataset, and prints what that cost its process as JSON. Its own process, so that its memory is nobody else's.
import { readFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { finishDataset } from '../../src/activities/data/finish-dataset.js';
import { gatherDataset } from '../../src/activities/data/gather-dataset.js';
import { openStore } from '../../src/store/open-store.js';

const [address = '', spec = ''] = process.argv.slice(2);
const store = await openStore(address);
const delay = monitorEventLoopDelay({ resolution: 5 });
delay.enable();
const begun = performance.now();
const quiet = new AbortController().signal;
const input = { spec: JSON.parse(spec) as unknown };
await gatherDataset({ store }, input, quiet);
const { train_tasks, held_out_tasks } = await finishDataset({ store }, input, quiet);
delay.disable();
console.log(
  JSON.stringify({
    prepare_tasks: train_tasks + held_out_tasks,
    prepare_seconds: (performance.now() - begun) / 1000,
    prepare_mib: Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) / 1024,
    prepare_loop_ms: delay.max / 1e6,
  }),
);
