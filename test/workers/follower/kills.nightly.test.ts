// After 20 kills, no metric point is doubled or missing: separate processes, with a store in a directory, metrics.jsonl and TensorBoard.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { type MetricPoint, stepOfId } from '../../../src/integrations/tracking/metric-point.js';
import { eventFileName } from '../../../src/integrations/tracking/tensorboard/tensorboard-sink.js';
import { eventIds, expectedPoints } from '../../support/stored-points.js';
import { followThroughKills } from './killed-processes.js';
import { memoryStore } from './memory-store.js';
import { recordsOf, writeAll } from './written-run.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const scratch = scratchFolder();

const kills = 20;
const run = {
  steps: 400,
  evalInterval: 7,
  unapplied: new Map([[13, 'no_signal']]),
  // As many figures as a step with several environments.
  metrics: (step: number) =>
    Object.fromEntries(
      Array.from({ length: 60 }, (_, i) => [`reward/env${i}/pass_at_n`, (step % 7) / (i + 1)]),
    ),
};

it('20 kills neither repeat nor lose a point', async () => {
  const complete = memoryStore();
  await writeAll(complete, recordsOf(run));
  const expected = await expectedPoints(complete, 'tiny');
  const ends = await followThroughKills({ folder: scratch, kills, run, livesMs: () => Math.random() * 40 });
  expect(ends.map(({ how, step, notice }) => ({ how, step, notice }))).toEqual(
    ['metrics.jsonl', 'tensorboard'].map(() => ({ how: 'delivered', step: run.steps, notice: null })),
  );

  const lines = readFileSync(join(scratch, 'metrics.jsonl'), 'utf8').trimEnd().split('\n');
  const points = lines.map((line) => JSON.parse(line) as MetricPoint);
  const events = await eventIds(readFileSync(join(scratch, 'tensorboard', eventFileName)));
  for (const ids of [points.map(({ id }) => id), events]) {
    const doubled = ids.length - new Set(ids).size;
    const missing = [...expected.keys()].filter((id) => !ids.includes(id)).length;
    console.log(`after ${kills} kills: ${ids.length} points, ${doubled} doubled, ${missing} missing`);
    expect({ doubled, missing, points: ids.length }).toEqual({
      doubled: 0,
      missing: 0,
      points: expected.size,
    });
    const steps = ids.map(stepOfId).filter((step) => step !== null);
    expect(steps).toEqual(steps.map((_, index) => index + 1));
  }
  for (const point of points) expect(point).toEqual(expected.get(point.id));
});
