// Which trackers a run has. They share no file with each other or with another run.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { RunFigures } from '../../../src/integrations/tracking/prometheus.js';
import { createTrackers } from '../../../src/integrations/tracking/trackers.js';
import { pointsOf, startedAt } from './points.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const folder = scratchFolder();
const quiet = new AbortController().signal;

it('a run has the trackers it asks for, in folders of its own', async () => {
  const wandb = { python: 'python3', apiKey: () => undefined, mode: 'offline' } as const;
  const settings = { folder, metricsJsonl: true, tensorboard: true, wandb, figures: new RunFigures() };
  for (const run of ['tiny', 'tiny~2']) {
    const tracked = { run, project: 'tests', startedAt, config: {} };
    const sinks = createTrackers(settings, tracked);
    expect(sinks.map(({ name }) => name)).toEqual(['metrics.jsonl', 'tensorboard', 'wandb', 'prometheus']);
    for (const metricsJsonl of [true, false])
      expect(createTrackers({ folder, metricsJsonl, tensorboard: false }, tracked)).toHaveLength(
        metricsJsonl ? 1 : 0,
      );
    for (const sink of sinks.filter(({ name }) => name !== 'wandb')) {
      expect((await sink.open(quiet)).step).toBe(null);
      await sink.write(pointsOf(3), quiet);
      await sink.close(quiet);
    }
  }
  expect(existsSync(join(folder, 'tiny', 'metrics.jsonl'))).toBe(true);
  expect(existsSync(join(folder, 'tensorboard', 'tiny~2', 'events.out.tfevents.0000000000.longhaul'))).toBe(
    true,
  );
});
