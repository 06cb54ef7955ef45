// Longhaul's own metrics for Prometheus: each run's current figures. Temporal's SDK serves its metrics at its own address.
import { Gauge, Registry } from 'prom-client';
import { Delivered, type MetricPoint, type PointSink, stepOfId } from './metric-point.js';

/** Each metric with its help and labels; dashboards and alerts use these names. */
export const prometheusMetrics = {
  longhaul_step: ['last committed step', ['run']],
  longhaul_step_committed_timestamp_seconds: ['time at which the last step was committed', ['run']],
  longhaul_step_seconds: ['seconds between the last two commits', ['run']],
  longhaul_update_seconds: ['seconds of the last update', ['run']],
  longhaul_update_applied: ['1 if the last update changed the policy, else 0', ['run']],
  longhaul_reward_mean: ['mean reward of the last step', ['run']],
  longhaul_reward_pass_at_n: ['share of prompts with any reward above 0', ['run', 'environment']],
  longhaul_learning_signal_ratio: [
    'share of groups that the last update learned from',
    ['run', 'environment'],
  ],
  longhaul_unknown_ratio: ['share of episodes of the last step without an outcome', ['run']],
  longhaul_tool_error_ratio: ['share of tool calls that failed', ['run', 'environment']],
  longhaul_policy: ['policy/… metrics of the last update', ['run', 'figure']],
  longhaul_eval_pass_ratio: ['pass@1 of the last evaluation', ['run', 'suite', 'environment']],
  longhaul_eval_pass_at_k_ratio: [
    'pass@k of the last evaluation; k="n": share of tasks with any reward above 0',
    ['run', 'suite', 'environment', 'k'],
  ],
  longhaul_eval_unknown: [
    'episodes of the last evaluation without an outcome',
    ['run', 'suite', 'environment'],
  ],
  longhaul_eval_step: ['step whose state was evaluated last', ['run', 'suite']],
  longhaul_ft: ['ft/… metrics since the run began: the cost of faults', ['run', 'figure']],
  longhaul_cost: ['cost/… metrics since the run began', ['run', 'figure']],
  longhaul_follower_step: ['last step that a tracker or channel has received', ['run', 'sink']],
  longhaul_follower_failing: ['1 while a tracker or channel does not accept data', ['run', 'sink']],
} as const satisfies Record<`longhaul_${string}`, readonly [help: string, labels: readonly string[]]>;

type PrometheusMetric = keyof typeof prometheusMetrics;

/** Figures without an environment cover all environments, and get the label `all`. */
const byEnvironment: readonly [name: RegExp, metric: PrometheusMetric][] = [
  [/^reward\/(.+)\/pass_at_n$|^reward\/avg_pass_at_n$/, 'longhaul_reward_pass_at_n'],
  [/^reward\/(.+)\/signal_ratio$|^reward\/signal_ratio$/, 'longhaul_learning_signal_ratio'],
  [/^environment\/(.+)\/tool_error_rate$|^environment\/tool_error_rate$/, 'longhaul_tool_error_ratio'],
];
const byFigure: readonly [prefix: string, metric: PrometheusMetric][] = [
  ['policy/', 'longhaul_policy'],
  ['ft/', 'longhaul_ft'],
  ['cost/', 'longhaul_cost'],
];
const single: Readonly<Record<string, PrometheusMetric>> = {
  'timing/step': 'longhaul_step_seconds',
  'timing/policy_train': 'longhaul_update_seconds',
  'trainer/applied': 'longhaul_update_applied',
  'reward/avg_raw_reward': 'longhaul_reward_mean',
  'reward/unknown_ratio': 'longhaul_unknown_ratio',
};
const allPrompts = ['reward/avg_pass_at_n', 'reward/signal_ratio'] as const;
/** `eval.12.interval.0a1b2c3d`. */
const evaluationId = /^eval\.[0-9]+\.(.+)\.[0-9a-f]{8}$/;

/** The figures of all runs in one process. */
export class RunFigures {
  readonly registry = new Registry();
  private readonly gauges = new Map<PrometheusMetric, Gauge>();
  /** By run, so that the figures of an ended run can be removed. */
  private readonly shown = new Map<string, Map<string, () => void>>();
  /** The newest evaluated step, by run and suite. */
  private readonly evaluated = new Map<string, Map<string, number>>();

  constructor() {
    for (const [name, [help, labelNames]] of Object.entries(prometheusMetrics)) {
      const gauge = new Gauge({ name, help, labelNames: [...labelNames], registers: [this.registry] });
      this.gauges.set(name as PrometheusMetric, gauge);
    }
  }

  /** Steps arrive in order. An evaluation of an older step than the suite's newest changes nothing. */
  show(run: string, point: MetricPoint): void {
    if (stepOfId(point.id) === null) this.showEvaluation(run, point);
    else this.showStep(run, point);
  }

  /** `step` is null if nothing has been delivered yet. */
  showFollower(
    run: string,
    sink: string,
    { step, failing }: { step: number | null; failing: boolean },
  ): void {
    if (step !== null) this.set('longhaul_follower_step', { run, sink }, step);
    this.set('longhaul_follower_failing', { run, sink }, failing ? 1 : 0);
  }

  /** Removes a run: later scrapes do not show it. */
  forget(run: string): void {
    for (const remove of this.shown.get(run)?.values() ?? []) remove();
    this.shown.delete(run);
    this.evaluated.delete(run);
  }

  private showStep(run: string, { step, at, values }: MetricPoint): void {
    this.set('longhaul_step', { run }, step);
    this.set('longhaul_step_committed_timestamp_seconds', { run }, Date.parse(at) / 1000);
    this.removeUngraded(run, values);
    for (const [name, value] of Object.entries(values)) {
      const metric = single[name];
      if (metric) this.set(metric, { run }, value);
      for (const [pattern, one] of byEnvironment) {
        const match = pattern.exec(name);
        if (match) this.set(one, { run, environment: match[1] ?? 'all' }, value);
      }
      for (const [prefix, one] of byFigure)
        if (name.startsWith(prefix)) this.set(one, { run, figure: name.slice(prefix.length) }, value);
    }
  }

  private showEvaluation(run: string, { id, step, values }: MetricPoint): void {
    const suite = evaluationId.exec(id)?.[1] ?? 'all';
    const newest = this.evaluated.get(run) ?? new Map<string, number>();
    this.evaluated.set(run, newest);
    if (step < (newest.get(suite) ?? -1)) return;
    newest.set(suite, step);
    this.set('longhaul_eval_step', { run, suite }, step);
    const prefix = suite === 'interval' ? 'eval/' : `eval/${suite}/`;
    for (const [name, value] of Object.entries(values)) {
      if (!name.startsWith(prefix)) continue;
      const [, environment, figure] = /^(.+)\/([^/]+)$/.exec(name.slice(prefix.length)) ?? [];
      if (environment === undefined) continue;
      const ratio = { run, suite, environment };
      if (figure === 'pass_at_1') this.set('longhaul_eval_pass_ratio', ratio, value);
      if (figure === 'graded' && value === 0) this.remove('longhaul_eval_pass_ratio', ratio);
      const k = /^pass_at_(n|[2-9]|[1-9][0-9]+)$/.exec(figure ?? '')?.[1];
      if (k !== undefined) this.set('longhaul_eval_pass_at_k_ratio', { ...ratio, k }, value);
      if (figure === 'graded')
        for (const shown of this.shownKs(ratio))
          if (values[`${prefix}${environment}/pass_at_${shown}`] === undefined)
            this.remove('longhaul_eval_pass_at_k_ratio', { ...ratio, k: shown });
      if (figure === 'unknown') this.set('longhaul_eval_unknown', { run, suite, environment }, value);
    }
  }

  /** Removes figures that this step lacks because nothing was graded: figures of an earlier step must not be shown as this step's. */
  private removeUngraded(run: string, values: MetricPoint['values']): void {
    if (values['environment/total_episodes'] === undefined) return;
    if (values['reward/avg_raw_reward'] === undefined) this.remove('longhaul_reward_mean', { run });
    for (const name of Object.keys(values)) {
      const [played, own] = /^environment\/(?:(.+)\/num_episodes|total_episodes)$/.exec(name) ?? [];
      if (played === undefined) continue;
      const labels = { run, environment: own ?? 'all' };
      const [passed, signal] =
        own === undefined ? allPrompts : [`reward/${own}/pass_at_n`, `reward/${own}/signal_ratio`];
      if (values[passed] === undefined) this.remove('longhaul_reward_pass_at_n', labels);
      if (values[signal] === undefined) this.remove('longhaul_learning_signal_ratio', labels);
    }
  }

  /** Values of k for which the suite has a figure. */
  private shownKs(ratio: { run: string; suite: string; environment: string }): string[] {
    const start = keyOf('longhaul_eval_pass_at_k_ratio', ratio).slice(0, -1);
    const keys = [...(this.shown.get(ratio.run)?.keys() ?? [])].filter((key) => key.startsWith(start));
    return keys.flatMap((key) => /"k":"([^"]+)"}$/.exec(key)?.[1] ?? []);
  }

  private remove(metric: PrometheusMetric, labels: Record<string, string>): void {
    const shown = this.shown.get(labels.run ?? '');
    const key = keyOf(metric, labels);
    shown?.get(key)?.();
    shown?.delete(key);
  }

  private set(metric: PrometheusMetric, labels: Record<string, string>, value: number): void {
    const gauge = this.gauges.get(metric);
    gauge?.set(labels, value);
    const run = labels.run ?? '';
    const shown = this.shown.get(run) ?? new Map<string, () => void>();
    this.shown.set(run, shown);
    const key = keyOf(metric, labels);
    if (!shown.has(key)) shown.set(key, () => gauge?.remove(labels));
  }
}

function keyOf(metric: PrometheusMetric, labels: Record<string, string>): string {
  return `${metric} ${JSON.stringify(labels)}`;
}

/** Writes a run's points into `figures`. A new process has none of them, so it receives all points again. */
export function createPrometheusSink(figures: RunFigures, run: string): PointSink {
  const delivered = new Delivered();
  return {
    name: 'prometheus',
    open: async () => new Delivered(delivered.step, delivered.evaluations),
    write: async (points) => {
      for (const point of points) {
        figures.show(run, point);
        delivered.add(point.id);
      }
    },
    close: async () => undefined,
  };
}
