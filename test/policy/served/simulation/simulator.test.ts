import { expect, test } from 'vitest';
import { scheduleOf } from './schedule.js';
import { simulate } from './simulation.js';

test('smoke', async () => {
  const first = Number(process.env['FIRST'] ?? 1);
  const count = Number(process.env['COUNT'] ?? 20);
  const calm = process.env['CALM'] !== undefined;
  const began = performance.now();
  const kinds: Record<string, number> = {};
  let operations = 0;
  for (let seed = first; seed < first + count; seed++) {
    const trace: string[] | undefined = process.env['TRACE'] ? [] : undefined;
    const schedule = scheduleOf(seed);
    const verdict = await simulate(calm ? { ...schedule, mostFaults: 0, visitors: 0 } : schedule, trace ? { trace } : {});
    operations += verdict.operations;
    kinds[verdict.kind] = (kinds[verdict.kind] ?? 0) + 1;
    if (verdict.wrongSamples.length) kinds['samples'] = (kinds['samples'] ?? 0) + 1;
    if (verdict.kind !== 'right') console.log(seed, verdict.kind, verdict.reasons[0], verdict.operations);
    if (trace) console.log(JSON.stringify(schedule), '\n', trace.join('\n'));
  }
  const ms = performance.now() - began;
  console.log(kinds, 'ms each', ms / count, 'operations each', operations / count);
  expect(1).toBe(1);
});
