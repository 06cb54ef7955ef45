// Advantages of a step's samples, as defined by SkyRL's estimators without a critic. Means and deviations use graded outcomes only; an
// unknown outcome never counts as 0.
import type { AdvantagePlan } from '../spec/records/plan.js';

export interface GradedSample {
  /** Null for an unknown outcome. */
  reward: number | null;
  /** Number of sampled tokens. */
  tokens: number;
}

type GroupRelative = Exclude<AdvantagePlan, { estimator: 'reinforce++' }>;

/** Added to the variance when returns are whitened. */
const whiteningEps = 1e-8;

/** Advantages of each group's samples, in order. Null if a sample carries no loss: its outcome is unknown, or there is no signal. */
export function stepAdvantages(
  groups: readonly (readonly GradedSample[])[],
  settings: AdvantagePlan,
): (number | null)[][] {
  if (settings.estimator === 'reinforce++') return whitenedReturns(groups);
  return groups.map((group) =>
    groupAdvantages(
      group.map(({ reward }) => reward),
      settings,
    ),
  );
}

/**
 * Advantages within one group. grpo: (R − mean) / (std + eps), or without the division; rloo: R − mean of the other rewards; maxrl: (R −
 * mean) / (mean − min(0, lowest reward) + eps). A group with fewer than two graded samples, or with all rewards equal, has no signal.
 */
export function groupAdvantages(
  rewards: readonly (number | null)[],
  settings: GroupRelative,
): (number | null)[] {
  const graded = rewards.filter((reward) => reward !== null);
  if (graded.length < 2 || graded.every((reward) => reward === graded[0])) return rewards.map(() => null);
  const mean = sum(graded) / graded.length;
  const scale = scaleOf(graded, mean, settings);
  return rewards.map((reward) => (reward === null ? null : (reward - mean) / scale));
}

function scaleOf(graded: readonly number[], mean: number, settings: GroupRelative): number {
  const n = graded.length;
  switch (settings.estimator) {
    case 'grpo': {
      if (!settings.norm_by_std) return 1;
      const squares = sum(graded.map((reward) => (reward - mean) ** 2));
      return Math.sqrt(squares / (settings.deviation === 'sample' ? n - 1 : n)) + settings.eps;
    }
    case 'rloo':
      return (n - 1) / n;
    case 'maxrl':
      // MaxRL divides by the share of successes. Dividing by a negative mean would invert what the policy learns, so a negative lowest reward
      // counts as 0.
      return mean - Math.min(0, ...graded) + settings.eps;
  }
}

/**
 * reinforce++: the return of every sampled token is its sample's reward, whitened over all sampled tokens of the step (variance divided by
 * n − 1). So a long sample has more weight in the mean, as it has in the loss. If all rewards are equal, there is no signal.
 */
function whitenedReturns(groups: readonly (readonly GradedSample[])[]): (number | null)[][] {
  const graded = groups
    .flat()
    .flatMap(({ reward, tokens }) => (reward === null || tokens === 0 ? [] : [{ reward, tokens }]));
  const none = graded.every(({ reward }) => reward === graded[0]?.reward);
  const count = sum(graded.map(({ tokens }) => tokens));
  const mean = sum(graded.map(({ reward, tokens }) => tokens * reward)) / count;
  const squares = sum(graded.map(({ reward, tokens }) => tokens * (reward - mean) ** 2));
  const scale = Math.sqrt(squares / (count - 1) + whiteningEps);
  return groups.map((group) =>
    group.map(({ reward }) => (none || reward === null ? null : (reward - mean) / scale)),
  );
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
