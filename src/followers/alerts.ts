// What is wrong with a run, step by step, as its records tell it. Each alert is raised when it begins to hold and not again before it
// has ceased to: a function of the steps in their order, so that whoever looks, and whenever, raises the same ones.
import type { Alert, AlertRaised } from '../integrations/slack/run-event.js';
import { type BudgetLimit, limitsOf, type Spent } from '../spec/budget.js';
import type { UpdateRecord } from '../spec/records.js';
import type { BudgetSpec } from '../spec/run-spec.js';
import { spentBy } from '../store/spending.js';

const toolErrorThreshold = 0.5;
const unknownThreshold = 0.2;
/** An alert about a rate ceases to hold below this share of its threshold: one that wavers is told once. */
const ceasesBelow = 0.8;
/** GRPO steps in a row whose groups all had one outcome. One alone is chance. */
const noSignalSteps = 3;
/** Share of a limit from which on it is near, as `status` has it. */
const budgetShare = 0.8;
/** Steps whose time says what is usual. */
const usualSteps = 20;
/** A run stands still when it has taken so many times its usual step, and at least so long. */
const stalledTimes = 10;
const stalledAtLeastS = 600;
const stalledAfterSteps = 3;

/** Of the run's own steps. */
export interface SpentInSteps extends Pick<Spent, 'tokens' | 'gpu_seconds'> {
  /** Each step at the price that its start was given; 0 where that was none. */
  usd: number;
}

/** What the steps so far have left: all that the next one is judged by. Plain data, to be kept with a cursor. */
export interface AlertWatch {
  /** Alerts that hold, by name. */
  holding: string[];
  /** GRPO steps without a signal, in a row. */
  noSignal: number;
  spent: SpentInSteps;
  nodesLost: number;
  /** Who committed the last step. */
  worker: string | null;
  /** ISO 8601; null before the first step. */
  committedAt: string | null;
  /** Seconds of the last steps. */
  stepSeconds: number[];
}

export const nothingWatched: AlertWatch = {
  holding: [],
  noSignal: 0,
  spent: { tokens: 0, gpu_seconds: 0, usd: 0 },
  nodesLost: 0,
  worker: null,
  committedAt: null,
  stepSeconds: [],
};

export interface AlertSettings {
  /** ISO 8601. */
  startedAt: string;
  /** Of the start that planned the step. */
  budget: BudgetSpec | undefined;
}

/** The alerts that a step raises, and what is to be known for the next. */
export function watchStep(
  before: AlertWatch,
  update: UpdateRecord,
  settings: AlertSettings,
): { alerts: AlertRaised[]; watch: AlertWatch } {
  const { step } = update.identity;
  const at = update.observed.committed_at;
  const watch = plusStep(before, update, settings.budget?.usd_per_gpu_hour ?? 0);
  const holding = new Set(before.holding);
  const alerts: AlertRaised[] = [];
  const raise = (name: string, alert: Alert): void => {
    alerts.push({ kind: 'alert', id: `alert.${name}.${step}`, at, step, alert });
  };
  /** `ceased` is apart from not holding: between the two nothing changes. */
  const keep = (name: string, alert: Alert, holds: boolean, ceased = !holds): void => {
    if (holds && !holding.has(name)) raise(name, alert);
    if (holds) holding.add(name);
    else if (ceased) holding.delete(name);
  };
  const keepRate = (name: string, alert: Alert & { rate: number; threshold: number }): void =>
    keep(name, alert, alert.rate > alert.threshold, alert.rate < ceasesBelow * alert.threshold);

  for (const [environment, rate] of toolErrorRates(update))
    keepRate(`tool_error_rate.${environment}`, {
      about: 'tool_error_rate',
      environment,
      rate,
      threshold: toolErrorThreshold,
    });
  const unknown = unknownShare(update);
  if (unknown !== null)
    keepRate('unknown_outcomes', {
      about: 'unknown_outcomes',
      environment: null,
      rate: unknown,
      threshold: unknownThreshold,
    });
  keep(
    'no_learning_signal',
    { about: 'no_learning_signal', steps: watch.noSignal, signalRatio: 0 },
    watch.noSignal >= noSignalSteps,
  );
  const { applied } = update.identity;
  if (applied !== true && applied.reason !== 'no_signal')
    raise('update_skipped', { about: 'update_skipped', reason: applied.reason });
  if (watch.nodesLost > before.nodesLost) {
    const detail =
      update.observed.worker === undefined ? null : `the run goes on at ${update.observed.worker}`;
    raise('node_lost', { about: 'node_lost', node: nodeOf(before.worker), detail });
  }
  const spent = { ...watch.spent, wall_seconds: secondsBetween(settings.startedAt, at) };
  for (const { name, limit, used } of usedOf(settings.budget, spent)) {
    const alert: Alert = { about: 'budget_near', resource: name, spent: used, limit };
    keep(`budget_near.${name}.${limit}`, alert, used >= budgetShare * limit);
  }
  return { alerts, watch: { ...watch, holding: [...holding].sort() } };
}

/** Null while it does not stand still, or nobody can tell yet. One for each step behind which it does. `now`: ISO 8601. */
export function stalledSince(watch: AlertWatch, step: number, now: string): AlertRaised | null {
  const { committedAt, stepSeconds } = watch;
  if (committedAt === null || stepSeconds.length < stalledAfterSteps) return null;
  const usualSeconds = median(stepSeconds);
  const seconds = secondsBetween(committedAt, now);
  if (seconds < Math.max(stalledTimes * usualSeconds, stalledAtLeastS)) return null;
  const alert: Alert = { about: 'stalled', seconds, usualSeconds };
  return { kind: 'alert', id: `alert.stalled.${step}`, at: now, step, alert };
}

function plusStep(before: AlertWatch, update: UpdateRecord, usdPerGpuHour: number): AlertWatch {
  const { identity, observed } = update;
  const { tokens, gpu_seconds } = spentBy(update);
  const { spent } = before;
  const signal = observed.metrics['reward/signal_ratio'];
  const seconds =
    before.committedAt === null
      ? (observed.timings_ms.step ?? 0) / 1000
      : secondsBetween(before.committedAt, observed.committed_at);
  return {
    holding: before.holding,
    noSignal: identity.kind === 'grpo' && signal === 0 ? before.noSignal + 1 : 0,
    spent: {
      tokens: spent.tokens + tokens,
      gpu_seconds: spent.gpu_seconds + gpu_seconds,
      usd: spent.usd + (gpu_seconds / 3600) * usdPerGpuHour,
    },
    nodesLost: Math.max(before.nodesLost, observed.metrics['ft/restarts/node_lost'] ?? 0),
    worker: observed.worker ?? null,
    committedAt: observed.committed_at,
    stepSeconds: [...before.stepSeconds, ...(seconds > 0 ? [seconds] : [])].slice(-usualSteps),
  };
}

function toolErrorRates({ observed }: UpdateRecord): [environment: string, rate: number][] {
  return Object.entries(observed.metrics).flatMap(([name, rate]) => {
    const environment = /^environment\/(.+)\/tool_error_rate$/.exec(name)?.[1];
    return environment === undefined ? [] : [[environment, rate] as [string, number]];
  });
}

function unknownShare({ identity }: UpdateRecord): number | null {
  const outcomes = identity.outcomes.flat();
  if (outcomes.length === 0) return null;
  return outcomes.filter((outcome) => outcome === null).length / outcomes.length;
}

/** Of `{node}@{host} pid {pid}`. */
function nodeOf(worker: string | null): string {
  return worker?.split('@')[0] ?? 'a node';
}

/** As the run itself counts: all hours at the price of its present start. That is what it ends by. */
function usedOf(
  budget: BudgetSpec | undefined,
  spent: Spent,
): (Pick<BudgetLimit, 'name' | 'limit'> & { used: number })[] {
  if (!budget) return [];
  return limitsOf(budget).map(({ name, limit, counts, each }) => ({
    name,
    limit,
    used: spent[counts] * each,
  }));
}

function secondsBetween(from: string, to: string): number {
  return Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000);
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? (sorted[middle] ?? 0)
    : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}
