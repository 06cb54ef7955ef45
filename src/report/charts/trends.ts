// Small charts that help a researcher find out why a reward curve is not as expected.
import { stepsOfChanges } from '../../rl/environment-changes.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { trendFigures } from './trajectory-trends.js';

interface Trend {
  title: string;
  kind: 'grpo' | 'sft';
  /** `before`: the update of the previous step, if the report has it. */
  value: (update: UpdateRecord, before: UpdateRecord | undefined) => number | undefined;
  format: (value: number) => string;
  /** The chart is left out if all its values are 0: with one update a step, no ratio can be clipped. */
  optional?: true;
}

const trend: Trend[] = [
  {
    title: 'Loss of the warm start',
    kind: 'sft',
    value: ({ observed }) => observed.metrics['policy/final_loss'],
    format: (value) => value.toFixed(2),
  },
  {
    title: 'Groups with a learning signal',
    kind: 'grpo',
    value: (update) => update.observed.metrics['reward/signal_ratio'],
    format: (value) => `${Math.round(value * 100)} %`,
  },
  {
    title: 'Gradient norm',
    kind: 'grpo',
    value: ({ observed }) => observed.metrics['policy/grad_norm'],
    format: (value) => String(Number(value.toPrecision(3))),
  },
  {
    title: 'KL from GRPO’s first policy',
    kind: 'grpo',
    value: ({ observed }) => observed.metrics['policy/policy_kl'],
    format: (value) => String(Number(value.toPrecision(3))),
  },
  {
    title: 'Entropy of a token',
    kind: 'grpo',
    value: ({ observed }) => observed.metrics['policy/policy_entropy'],
    format: (value) => String(Number(value.toPrecision(3))),
  },
  {
    title: 'Tokens with a clipped ratio',
    kind: 'grpo',
    value: ({ observed }) => observed.metrics['policy/ppo_clip_ratio'],
    format: (value) => `${Number((value * 100).toPrecision(2))} %`,
    optional: true,
  },
  {
    title: 'Sampled tokens per episode',
    kind: 'grpo',
    value: ({ observed }) => observed.metrics['generate/avg_num_tokens'],
    format: (value) => String(Number(value.toPrecision(3))),
  },
  {
    title: 'Share of tool calls that failed',
    kind: 'grpo',
    value: ({ observed }) => observed.metrics['environment/tool_error_rate'],
    format: (value) => `${Math.round(value * 100)} %`,
  },
  {
    title: 'Seconds per step',
    kind: 'grpo',
    value: (update, before) => (update.observed.timings_ms['step'] ?? NaN) / 1000 - heldUp(update, before),
    format: (value) => String(Number(value.toPrecision(3))),
  },
];

/** Seconds of the step in which a person held the run or no workflow drove it. They do not count as the step's duration. */
function heldUp(update: UpdateRecord, before: UpdateRecord | undefined): number {
  const total = ({ observed }: UpdateRecord): number =>
    ['paused', 'blocked', 'unowned']
      .map((held) => observed.metrics[`ft/${held}_seconds`] ?? 0)
      .reduce((sum, seconds) => sum + seconds, 0);
  return before?.identity.run === update.identity.run ? total(update) - total(before) : 0;
}

export function trends(updates: readonly UpdateRecord[]): string {
  return trendFigures(
    trend.flatMap(({ title, kind, value, format, optional }) => {
      const points = updates.flatMap((update, index) => {
        const y = update.identity.kind === kind ? value(update, updates[index - 1]) : undefined;
        return y === undefined || !Number.isFinite(y) ? [] : [{ x: update.identity.step, y }];
      });
      const isShown = points.length > 1 && !(optional && points.every(({ y }) => y <= 0));
      return isShown ? [{ title, points, format }] : [];
    }),
    stepsOfChanges(updates),
  );
}
