// Figures of the process that tells trackers and Slack of runs.
import type { FigureDefinition } from './figure.js';

const part = 'operate/followers';

export const followerFigures: readonly FigureDefinition[] = [
  {
    name: 'followers_awaited_by_steps',
    measurement: 'operate',
    unit: 'kinds of events',
    bar: { atMost: 0 },
    what: 'with Slack and W&B hanging and the metrics files refused: kinds of activities, signals and updates in a run’s history that the same run has not where nobody is told',
    value: (of) => of(part, 'awaited_by_steps'),
  },
  {
    name: 'followers_step_ms_hanging',
    measurement: 'operate',
    unit: 'ms',
    bar: null,
    what: 'median time from commit to commit of steps of milliseconds with all of them hanging',
    value: (of) => of(part, 'hanging_step_ms'),
  },
  {
    name: 'followers_step_ms_quiet',
    measurement: 'operate',
    unit: 'ms',
    bar: null,
    what: 'the same of runs of which nobody is told, in turns with those',
    value: (of) => of(part, 'quiet_step_ms'),
  },
  {
    name: 'followers_cpu_share',
    measurement: 'operate',
    unit: 'share',
    bar: { atMost: 0.01 },
    what: 'CPU time of the follower while all of them hang, over that of all processes that make the run’s steps; median of the runs',
    value: (of) => of(part, 'cpu_share'),
  },
  {
    name: 'followers_cpu_share_first',
    measurement: 'operate',
    unit: 'share',
    bar: { atMost: 0.01 },
    what: 'the same of the first run alone, with which the follower loads its clients, once in its life',
    value: (of) => of(part, 'first_cpu_share'),
  },
  {
    name: 'followers_kills',
    measurement: 'operate',
    unit: 'kills',
    bar: { atLeast: 20 },
    what: 'of the follower by SIGKILL that met it before it had told a run to its end',
    value: (of) => of(part, 'kills'),
  },
  {
    name: 'followers_slack_doubled_or_missing',
    measurement: 'operate',
    unit: 'messages',
    bar: { atMost: 0 },
    what: 'of a run’s events in its Slack thread, after those kills',
    value: (of) => of(part, 'slack_doubled') + of(part, 'slack_missing'),
  },
  {
    name: 'followers_points_doubled_or_missing',
    measurement: 'operate',
    unit: 'points',
    bar: { atMost: 0 },
    what: 'of the same run, in `metrics.jsonl` and TensorBoard’s event file',
    value: (of) => of(part, 'points_doubled') + of(part, 'points_missing'),
  },
];
