// TensorBoard's own package reads the files: each scalar is at its step, and none is repeated, despite restarts and torn ends.
import { execFile } from 'node:child_process';
import { readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import type { MetricPoint } from '../../../src/integrations/tracking/metric-point.js';
import { createMetricsJsonl } from '../../../src/integrations/tracking/metrics-jsonl.js';
import {
  createTensorBoard,
  eventFileName,
} from '../../../src/integrations/tracking/tensorboard/tensorboard-sink.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { pointsOf, startedAt } from './points.js';

const python = await pythonWith('tensorboard');

const scratch = scratchFolder();
const quiet = new AbortController().signal;

/** {tag: [[wall time, step, value], …]}, as TensorBoard's front end gets them. */
const reader = `
import json, sys
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"tensors": 0})
events.Reload()
from tensorboard.util import tensor_util
print(json.dumps({tag: [[e.wall_time, e.step, float(tensor_util.make_ndarray(e.tensor_proto))] for e in events.Tensors(tag)]
                  for tag in events.Tags()["tensors"]}))
`;
import { scratchFolder } from '../../support/scratch-folder.js';

const metricsOf = (path: string): MetricPoint[] =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as MetricPoint);

describe.skipIf(!python)('tensorboard 2.21.0', () => {
  it('reads every point once, with its step and its time', async () => {
    const points = pointsOf(50);
    const sink = createTensorBoard(scratch, startedAt);
    const path = join(scratch, eventFileName);
    for (let round = 0; round < 8; round++) {
      const delivered = await sink.open(quiet);
      const missing = points.filter(({ id }) => !delivered.has(id));
      await sink.write(round < 7 ? missing.slice(0, 12) : missing, quiet);
      await sink.close(quiet);
      // The file is torn at a byte of its last points.
      if (round < 7) truncateSync(path, readFileSync(path).length - 1 - round * 41);
    }
    // The same points in metrics.jsonl: TensorBoard may differ only in precision.
    const lines = join(scratch, 'metrics.jsonl');
    const jsonl = createMetricsJsonl(lines);
    await jsonl.open(quiet);
    await jsonl.write(points, quiet);
    await jsonl.close(quiet);
    const { stdout } = await promisify(execFile)(python, ['-c', reader, scratch], { timeout: 90_000 });
    const read = JSON.parse(stdout) as Record<string, [number, number, number][]>;
    const expected: Record<string, [number, number, number][]> = {};
    let zeros = 0;
    for (const { step, at, values } of metricsOf(lines))
      for (const [tag, value] of Object.entries(values)) {
        (expected[tag] ??= []).push([Date.parse(at) / 1000, step, Math.fround(value)]);
        if (value === 0) zeros++;
      }
    expect(zeros).toBeGreaterThan(50);
    expect(read).toEqual(expected);
  });
});
