// Group-relative advantages. Only graded outcomes enter a group's mean and deviation; unknown is never 0.
export interface AdvantageSettings {
  /** Added to the standard deviation. */
  eps: number;
  /** Divides the squared deviations by n (`population`) or n − 1 (`sample`, as SkyRL does). */
  deviation: 'population' | 'sample';
}

/** (R − mean) / (std + eps) per sample; null for what gives no target: unknown samples, groups without a signal. */
export function groupAdvantages(
  rewards: readonly (number | null)[],
  { eps, deviation }: AdvantageSettings,
): (number | null)[] {
  const graded = rewards.filter((reward) => reward !== null);
  if (graded.length < 2 || graded.every((reward) => reward === graded[0])) return rewards.map(() => null);
  const mean = sum(graded) / graded.length;
  const squares = sum(graded.map((reward) => (reward - mean) ** 2));
  const std = Math.sqrt(squares / (deviation === 'sample' ? graded.length - 1 : graded.length));
  return rewards.map((reward) => (reward === null ? null : (reward - mean) / (std + eps)));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
