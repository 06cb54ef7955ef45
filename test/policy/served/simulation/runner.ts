// Simulates the schedules of some seeds in a process of its own, because it takes long: `runner.ts FIRST COUNT [CHANGES]`. Prints a line of JSON
// for each schedule that does not end right, then a line with all counts; between them empty objects, as signs of life. CHANGES is JSON that
// replaces a part of each schedule, such as `{"faults":{"kill":1},"visitors":0}`.
import { AsyncLocalStorage } from 'node:async_hooks';
import { setPriority } from 'node:os';
import { recordSchemas, summedKinds } from '../../../../src/spec/records/record-kinds.js';
import { changed, scheduleOf, type Changes } from './schedule.js';
import { simulate } from './simulation.js';

// Tests that run at the same time have deadlines, so they come first.
setPriority(10);
// The storage knows why a request was sent. Nothing here needs that, and it would slow down every promise of the process.
AsyncLocalStorage.prototype.run = <R, Args extends unknown[]>(
  _: unknown,
  use: (...args: Args) => R,
  ...args: Args
): R => use(...args);

// simulator.test.ts checks that records fit their schemas and sums. Checking them at each reading, too, would be a quarter of the work.
for (const schema of Object.values(recordSchemas))
  Object.assign(schema, { safeParse: (data: unknown) => ({ success: true, data }) });
summedKinds.clear();

// Processes read the same few records again and again.
const parsed = new Map<string, unknown>();
const mostParsed = 10_000;
const { parse } = JSON;
JSON.parse = (text: string): unknown => {
  if (parsed.has(text)) return parsed.get(text);
  if (parsed.size >= mostParsed) parsed.clear();
  const value = frozen(parse(text));
  parsed.set(text, value);
  return value;
};

function frozen<T>(value: T): T {
  if (typeof value === 'object' && value !== null) Object.values(value).forEach(frozen);
  return Object.freeze(value);
}

const [first, count] = process.argv.slice(2, 4).map(Number) as [number, number];
const changes = JSON.parse(process.argv[4] ?? '{}') as Changes;

/** Schedules between two signs of life. */
const signOfLife = 100;
const began = performance.now();
const counts = { right: 0, blocked: 0, wrong: 0, spoiled: 0 };
let [operations, wrongSamples] = [0, 0];
for (let seed = first; seed < first + count; seed++) {
  const verdict = await simulate(changed(scheduleOf(seed), changes));
  counts[verdict.kind] += 1;
  operations += verdict.operations;
  if (verdict.wrongSamples.length > 0) wrongSamples += 1;
  if (verdict.kind !== 'right' || verdict.wrongSamples.length > 0)
    console.log(JSON.stringify({ seed, ...verdict }));
  if (seed % signOfLife === 0) console.log('{}');
}
const seconds = (performance.now() - began) / 1000;
console.log(JSON.stringify({ ...counts, wrongSamples, operations, seconds }));
