// Worker thread: generates the built-in apps' data, which takes seconds and must not hold up the event loop.
import { parentPort, workerData } from 'node:worker_threads';
import { generateDemonstrations, generateTasks } from '../environments/apps/generate.js';
import type { BuiltinDataSpec } from '../spec/run-spec.js';

const spec = workerData as BuiltinDataSpec;
const lines = (items: readonly unknown[]): string =>
  items.map((item) => `${JSON.stringify(item)}\n`).join('');
parentPort?.postMessage({
  tasks: lines(generateTasks(spec)),
  demonstrations: lines(generateDemonstrations(spec)),
});
