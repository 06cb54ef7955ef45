// Computes a run's alerts from its records, step by step. An alert is raised when its condition begins to hold, and again only after the
// condition has ceased. The alerts depend only on the steps in order, so Slack, `status`, the end of a run and the report all show the same
// alerts.
import { type BudgetLimit, limitsOf, type Spent, usedOf } from '../spec/budget.js';
import type { ControlRecord } from '../spec/records/control-records.js';
import type { OwnerRecord } from '../spec/records/run-records.js';
import type { UpdateRecord } from '../spec/records/update.js';
import type { BudgetSpec } from '../spec/run-spec.js';
import { environmentChanges, type KnownServers, plusServers } from './environment-changes.js';
import { driftsOf, plusLevels, type RewardLevel, stepsOfLevel, type WatchedLevels } from './reward-drift.js';
import { costOf, spentBy, type SpentInSteps, sumOfSpent } from './spending.js';

const toolErrorThreshold = 0.5;
const unknownThreshold = 0.2;
/** A rate's alert ceases below this share of its threshold, so that a rate near the threshold raises it once. */
const ceasesBelow = 0.8;
/** GRPO steps in a row in which each group's outcomes are all equal. A single such step may be chance. */
const noSignalSteps = 3;
/** Number of GRPO steps in the mean of rewards or entropies, because a single step may be unlucky. */
const meanOfSteps = 5;
/** A reward has collapsed if it is below this share of the best mean. Runs with a best mean below the floor are not judged. */
const collapsedShare = 0.25;
const rewardFloor = 0.1;
/**
 * Entropy is gone if it is below this share of its highest mean and below the floor, in nats per token. A low share alone is no alert: the
 * policy may be certain and correct.
 */
const goneShare = 0.05;
const entropyFloor = 0.02;
/** A reward or an entropy has recovered above this multiple of its threshold. */
const recoveredTimes = 2;
/** A gradient norm is unusual above this multiple of the median of the GRPO steps before it, if it is also above the floor. */
const gradNormTimes = 10;
const gradNormFloor = 1;
const gradNormAfterSteps = 5;
/** From this share on, a budget limit is near; `status` uses the same share. */
const budgetShare = 0.8;
/** Number of recent steps that define the usual step time. */
const usualSteps = 20;
/** A run is stalled if no step ends within this multiple of its usual step time, or within `stalledAtLeastS` seconds if that is longer. */
const stalledTimes = 10;
const stalledAtLeastS = 600;
const stalledAfterSteps = 3;

/** The content of an alert. Rates, thresholds and rewards are shares, 0..1; `spent` and `limit` are in the unit of `resource`. */
export type Alert =
  | { about: 'tool_error_rate'; environment: string; rate: number; threshold: number }
  | { about: 'no_learning_signal'; steps: number; signalRatio: number }
  | { about: 'reward_collapsed'; reward: number; best: number; steps: number }
  | { about: 'reward_drift'; environment: string; steps: number; now: RewardLevel; best: RewardLevel }
  | { about: 'entropy_gone'; entropy: number; highest: number; steps: number }
  | { about: 'gradient_norm'; norm: number; usual: number }
  | { about: 'update_skipped'; reason: string }
  | { about: 'unknown_outcomes'; environment: string | null; rate: number; threshold: number }
  | { about: 'environment_changed'; environment: string; changes: string[] }
  | { about: 'node_lost'; node: string; detail: string | null }
  | { about: 'budget_near'; resource: string; spent: number; limit: number }
  | { about: 'stalled'; seconds: number; usualSeconds: number };

export interface RaisedAlert {
  /** Identifies the alert and its subject, for example `tool_error_rate.crm`. */
  name: string;
  step: number;
  /** ISO 8601, from the record of the step. */
  at: string;
  alert: Alert;
}

/** Spending of the run's own steps, without its parent's. */
interface WatchedSpending extends SpentInSteps {
  /** Each step counts at the price given at the start that ran it; 0 if no price was given. */
  usd: number;
}

/** The facts about earlier steps that are needed to judge the next step. Plain data: it is stored with a follower's cursor. */
export interface AlertWatch {
  /** Names of the alerts that hold now. */
  holding: string[];
  /** Number of GRPO steps in a row without a signal. */
  noSignal: number;
  spent: WatchedSpending;
  nodesLost: number;
  worker: string | null;
  /** When the last step was committed, ISO 8601; null before the first step. */
  committedAt: string | null;
  /** Durations of the last steps, in seconds. */
  stepSeconds: number[];
  reward: WatchedMean;
  entropy: WatchedMean;
  /** Gradient norms of the last GRPO steps. */
  gradNorms: number[];
  /** By environment. */
  levels: Record<string, WatchedLevels>;
  environments: KnownServers;
}

/** A figure of GRPO steps: its last values, and its highest mean so far. */
interface WatchedMean {
  last: number[];
  highest: number | null;
}

export const nothingWatched: AlertWatch = {
  holding: [],
  noSignal: 0,
  spent: { tokens: 0, gpu_seconds: 0, usd: 0 },
  nodesLost: 0,
  worker: null,
  committedAt: null,
  stepSeconds: [],
  reward: { last: [], highest: null },
  entropy: { last: [], highest: null },
  gradNorms: [],
  levels: {},
  environments: {},
};

interface AlertSettings {
  /** ISO 8601. */
  startedAt: string;
  /** Budget given at the start that planned the step. */
  budget: BudgetSpec | undefined;
}

/** Returns the alerts that a step raises, and the watch for the next step. */
export function watchStep(
  before: AlertWatch,
  update: UpdateRecord,
  settings: AlertSettings,
): { alerts: RaisedAlert[]; watch: AlertWatch } {
  const { step } = update.identity;
  const at = update.observed.committed_at;
  const watch = plusStep(before, update, settings.budget);
  const holding = new Set(before.holding);
  const alerts: RaisedAlert[] = [];
  const raise = (name: string, alert: Alert): void => {
    alerts.push({ name, step, at, alert });
  };
  const steps = meanOfSteps;
  /** Raises an alert if it begins to hold, and drops it if it has `ceased`. If neither is true, nothing changes. */
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
  for (const { about, mean, highest, low } of fallsOf(watch)) {
    const alert: Alert =
      about === 'reward_collapsed'
        ? { about, reward: mean, best: highest, steps }
        : { about, entropy: mean, highest, steps };
    keep(about, alert, mean < low, mean > recoveredTimes * low);
  }
  for (const { environment, now, best, holds, ceased } of driftsOf(watch.levels))
    keep(
      `reward_drift.${environment}`,
      { about: 'reward_drift', environment, now, best, steps: stepsOfLevel },
      holds,
      ceased,
    );
  const norm = gradNormOf(update);
  if (norm !== null && before.gradNorms.length >= gradNormAfterSteps) {
    const usual = median(before.gradNorms);
    const alert: Alert = { about: 'gradient_norm', norm, usual };
    const limit = Math.max(gradNormFloor, gradNormTimes * usual);
    keep('gradient_norm', alert, norm > limit, norm < ceasesBelow * limit);
  }
  const { applied } = update.identity;
  if (applied !== true && applied.reason !== 'no_signal')
    raise('update_skipped', { about: 'update_skipped', reason: applied.reason });
  for (const { environment, changes } of environmentChanges(before.environments, update))
    raise(`environment_changed.${environment}`, { about: 'environment_changed', environment, changes });
  if (watch.nodesLost > before.nodesLost) {
    const detail =
      update.observed.worker === undefined ? null : `the run continues on ${update.observed.worker}`;
    raise('node_lost', { about: 'node_lost', node: nodeOf(before.worker), detail });
  }
  const spent = { ...watch.spent, wall_seconds: secondsBetween(settings.startedAt, at) };
  for (const { name, limit, used } of usedLimits(settings.budget, spent)) {
    const alert: Alert = { about: 'budget_near', resource: name, spent: used, limit };
    keep(`budget_near.${name}.${limit}`, alert, used >= budgetShare * limit);
  }
  return { alerts, watch: { ...watch, holding: [...holding].sort() } };
}

export interface AlertStanding extends RaisedAlert {
  /** Steps at which the alert was raised; `step` and `alert` describe the last one. */
  steps: number[];
  /** True if the alert still holds after the last step examined. */
  holds: boolean;
}

/**
 * Computes a run's alerts from its own updates, which are given in order. The result lists the alerts that hold first, then the others,
 * newest first. Budget alerts are left out, because the callers show the budget separately.
 */
export function alertsOf(
  updates: readonly UpdateRecord[],
  { startedAt }: Pick<AlertSettings, 'startedAt'>,
): { alerts: AlertStanding[]; watch: AlertWatch } {
  let watch = nothingWatched;
  const found = new Map<string, AlertStanding>();
  for (const update of updates) {
    const next = watchStep(watch, update, { startedAt, budget: undefined });
    watch = next.watch;
    for (const raised of next.alerts) {
      const steps = [...(found.get(raised.name)?.steps ?? []), raised.step];
      found.set(raised.name, { ...raised, steps, holds: false });
    }
  }
  const last = updates.at(-1)?.identity.step;
  // A skipped update is an alert only for its own step, and a lost node never holds later. A changed environment holds for ever, because earlier
  // steps stay incomparable with later ones.
  const standing = [...found.values()].map((one) => ({
    ...one,
    holds:
      watch.holding.includes(one.name) ||
      one.alert.about === 'environment_changed' ||
      (one.step === last && one.alert.about === 'update_skipped'),
  }));
  const alerts = standing.sort((a, b) => Number(b.holds) - Number(a.holds) || b.step - a.step);
  return { alerts, watch };
}

/** A run that was paused or had ended counts as stalled only from its resumption on. */
export function restAside(
  watch: AlertWatch,
  control: readonly ControlRecord[],
  owners: readonly OwnerRecord[],
): AlertWatch {
  const resumed = control.findLast(({ change }) => change.kind === 'resume')?.observed.at;
  const begun = [resumed, owners.at(-1)?.observed.at].filter((at) => at !== undefined);
  const committedAt = begun.reduce(
    (a, b) => (a !== null && Date.parse(b) > Date.parse(a) ? b : a),
    watch.committedAt,
  );
  return { ...watch, committedAt };
}

/**
 * The alert of a run that is stalled now; null if the run is not stalled, or if there are too few steps to judge. `step`: the last
 * committed step; a run stalls at most once after each step. `now`: ISO 8601.
 */
export function stalledSince(watch: AlertWatch, step: number, now: string): RaisedAlert | null {
  const { committedAt, stepSeconds } = watch;
  if (committedAt === null || stepSeconds.length < stalledAfterSteps) return null;
  const usualSeconds = median(stepSeconds);
  const seconds = secondsBetween(committedAt, now);
  if (seconds < Math.max(stalledTimes * usualSeconds, stalledAtLeastS)) return null;
  const alert: Alert = { about: 'stalled', seconds, usualSeconds };
  return { name: 'stalled', step, at: now, alert };
}

function plusStep(before: AlertWatch, update: UpdateRecord, budget: BudgetSpec | undefined): AlertWatch {
  const { identity, observed } = update;
  const step = spentBy(update);
  const { spent } = before;
  const norm = gradNormOf(update);
  const seconds =
    before.committedAt === null
      ? (observed.timings_ms.step ?? 0) / 1000
      : secondsBetween(before.committedAt, observed.committed_at);
  return {
    environments: plusServers(before.environments, update),
    holding: before.holding,
    noSignal: identity.kind === 'grpo' ? withoutSignal(before.noSignal, update) : 0,
    spent: { ...sumOfSpent(spent, step), usd: spent.usd + costOf(step, budget) },
    nodesLost: Math.max(before.nodesLost, observed.metrics['ft/restarts/node_lost'] ?? 0),
    worker: observed.worker ?? null,
    committedAt: observed.committed_at,
    stepSeconds: [...before.stepSeconds, ...(seconds > 0 ? [seconds] : [])].slice(-usualSteps),
    reward: plusValue(before.reward, grpoFigure(update, 'reward/avg_raw_reward')),
    entropy: plusValue(before.entropy, grpoFigure(update, 'policy/policy_entropy')),
    levels: identity.kind === 'grpo' ? plusLevels(before.levels, update.observed.metrics) : before.levels,
    gradNorms: [...before.gradNorms, ...(norm === null ? [] : [norm])].slice(-usualSteps),
  };
}

/** Null if the step lacks the figure, or is supervised: supervised steps have other figures. */
function grpoFigure(update: UpdateRecord, name: string): number | null {
  return update.identity.kind === 'grpo' ? (update.observed.metrics[name] ?? null) : null;
}

/** Counts steps without a signal in a row. A step with too few grades to judge changes nothing. */
function withoutSignal(before: number, update: UpdateRecord): number {
  const signal = grpoFigure(update, 'reward/signal_ratio');
  if (signal === null) return before;
  return signal === 0 ? before + 1 : 0;
}

/** Null if the step applied no update, and so has no gradient. */
function gradNormOf(update: UpdateRecord): number | null {
  return update.identity.applied === true ? grpoFigure(update, 'policy/grad_norm') : null;
}

function plusValue(before: WatchedMean, value: number | null): WatchedMean {
  if (value === null) return before;
  const last = [...before.last, value].slice(-meanOfSteps);
  // The first steps count too, because a run may already go wrong in its second step.
  return { last, highest: Math.max(before.highest ?? -Infinity, mean(last)) };
}

interface Fall {
  about: 'reward_collapsed' | 'entropy_gone';
  mean: number;
  highest: number;
  /** The alert holds below this value. */
  low: number;
}

/** Figures that may have fallen: those with enough steps, and with a highest mean above the floor. */
function fallsOf({ reward, entropy }: AlertWatch): Fall[] {
  const falls: Fall[] = [];
  if (reward.highest !== null && reward.highest >= rewardFloor && reward.last.length >= meanOfSteps)
    falls.push({
      ...{ about: 'reward_collapsed', mean: mean(reward.last), highest: reward.highest },
      low: collapsedShare * reward.highest,
    });
  if (entropy.highest !== null && entropy.last.length >= meanOfSteps)
    falls.push({
      ...{ about: 'entropy_gone', mean: mean(entropy.last), highest: entropy.highest },
      low: Math.min(entropyFloor, goneShare * entropy.highest),
    });
  return falls;
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

/** The node's name in `{node}@{host} pid {pid}`. */
function nodeOf(worker: string | null): string {
  return worker?.split('@')[0] ?? 'a node';
}

/**
 * How much of each limit is used. The run itself counts the same way to decide when to end: all at the prices of the current start.
 */
function usedLimits(
  budget: BudgetSpec | undefined,
  spent: Spent,
): (Pick<BudgetLimit, 'name' | 'limit'> & { used: number })[] {
  if (!budget) return [];
  return limitsOf(budget).map((one) => ({ name: one.name, limit: one.limit, used: usedOf(one, spent) }));
}

function secondsBetween(from: string, to: string): number {
  return Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000);
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? (sorted[middle] ?? 0)
    : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}
