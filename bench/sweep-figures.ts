// The figures of evaluation sweeps, and what their intervals are worth.
import type { FigureDefinition } from './figure.js';

const sweep = 'operate/sweep';
const what = '20 checkpoints of the quickstart’s model × 100 tasks × 4 samples';

const watched = ['orchestrator', 'node', 'engine'] as const;
const processes = {
  orchestrator: 'the orchestrator worker',
  node: 'the node worker',
  engine: 'the engine',
} as const;

export const sweepFigures: readonly FigureDefinition[] = [
  {
    name: 'sweep_seconds',
    measurement: 'operate',
    unit: 's',
    bar: { atMost: 300 },
    what: `wall time of a sweep over ${what} on the embedded stack, the comparison included`,
    value: (of) => of(sweep, 'seconds'),
  },
  {
    name: 'sweep_episodes',
    measurement: 'operate',
    unit: 'episodes',
    bar: { between: [8_000, 8_000] },
    what: 'episodes that it has played',
    value: (of) => of(sweep, 'episodes'),
  },
  ...watched.map((name): FigureDefinition => ({
    name: `sweep_${name}_growth`,
    measurement: 'operate',
    unit: 'share',
    bar: { atMost: 0.1 },
    what: `resident memory of ${processes[name]} in the last quarter of its time over that in the second one, minus 1`,
    value: (of) => of(sweep, `${name}_growth`),
  })),
  ...watched.map((name): FigureDefinition => ({
    name: `sweep_${name}_mib`,
    measurement: 'operate',
    unit: 'MiB',
    bar: null,
    what: `resident memory of ${processes[name]} in the last quarter`,
    value: (of) => of(sweep, `${name}_mib`),
  })),
  {
    name: 'sweep_again_seconds',
    measurement: 'operate',
    unit: 's',
    bar: { atMost: 5 },
    what: 'wall time of the same sweep under another name: nothing is new',
    value: (of) => of(sweep, 'again_seconds'),
  },
  {
    name: 'sweep_again_episodes',
    measurement: 'operate',
    unit: 'episodes',
    bar: { atMost: 0 },
    what: 'episodes that it has played',
    value: (of) => of(sweep, 'again_episodes'),
  },
  {
    name: 'sweep_kills',
    measurement: 'operate',
    unit: 'kills',
    bar: { atLeast: 10 },
    what: 'of node worker, orchestrator, engine and Temporal server by SIGKILL, at seeded moments, that met one sweep of 20 × 25 × 2 episodes',
    value: (of) => of(sweep, 'kills'),
  },
  {
    name: 'sweep_violations',
    measurement: 'operate',
    unit: 'violations',
    bar: { atMost: 0 },
    what: 'of the audit after them: an episode that was sampled again, or a result that its episodes do not give',
    value: (of) => of(sweep, 'violations'),
  },
  {
    name: 'sweep_table_equal',
    measurement: 'operate',
    unit: 'equal',
    bar: { atLeast: 1 },
    what: '1 where its table is that of the same sweep, played anew, that nobody killed',
    value: (of) => of(sweep, 'equal'),
  },
  {
    name: 'interval_coverage',
    measurement: 'operate',
    unit: 'share',
    bar: { between: [0.93, 0.97] },
    what: 'of 1,000 simulated comparisons (20 to 200 tasks, 1 to 8 samples, pass rates of 0.05 to 0.95) those whose 95 % interval holds the true difference',
    value: (of) => of('operate/intervals', 'coverage'),
  },
];
