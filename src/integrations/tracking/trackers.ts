// The trackers of one run, and the places of their files: `{folder}/{run}/metrics.jsonl`, `{folder}/tensorboard/{run}/`,
// `{folder}/wandb/{run}/`. A run id is a checked name, so it is a valid folder name.
import { join } from 'node:path';
import type { PointSink } from './metric-point.js';
import { createMetricsJsonl } from './metrics-jsonl.js';
import { createPrometheusSink, type RunFigures } from './prometheus.js';
import { createTensorBoard } from './tensorboard/tensorboard-sink.js';
import { createWandb, type WandbOptions } from './wandb/wandb-sink.js';

interface TrackerSettings {
  /** Folder on this machine, shared by the trackers of all runs. */
  folder: string;
  metricsJsonl: boolean;
  tensorboard: boolean;
  /** Absent if the run is not tracked in W&B. */
  wandb?: Omit<WandbOptions, 'run' | 'folder' | 'config' | 'project'> & {
    /** Absent for the run's own project. */
    project?: string;
  };
  /** Absent if no metrics are served to Prometheus. */
  figures?: RunFigures;
}

interface TrackedRun {
  run: string;
  project: string;
  /** ISO 8601. */
  startedAt: string;
  /** The run's configuration, shown with the run; it contains no secrets. */
  config: Record<string, unknown>;
}

export function createTrackers(settings: TrackerSettings, tracked: TrackedRun): PointSink[] {
  const { folder, metricsJsonl, tensorboard, wandb, figures } = settings;
  const { run, project, startedAt, config } = tracked;
  const sinks: PointSink[] = [];
  if (metricsJsonl) sinks.push(createMetricsJsonl(join(folder, run, 'metrics.jsonl')));
  if (tensorboard) sinks.push(createTensorBoard(join(folder, 'tensorboard', run), startedAt));
  if (wandb) sinks.push(createWandb({ project, ...wandb, run, config, folder: join(folder, 'wandb', run) }));
  if (figures) sinks.push(createPrometheusSink(figures, run));
  return sinks;
}
