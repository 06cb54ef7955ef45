// The reward of an episode: the sum of its steps' rewards, divided by the reward of a solved task. Computed in exact fractions of the decimal
// numbers that the server wrote: equal rewards of a group must be equal in any order of their sum, or the group would seem to have a signal.

interface Decimal {
  digits: bigint;
  /** The value is digits / 10^scale. */
  scale: number;
}

/** Relative tolerance: a reward that was computed in float32 may be too small by this share. */
const float32Rounding = 2 ** -23;
/** A number written by a person has fewer significant digits than a float32 number that was widened. */
const writtenDigits = 9;
/** More digits than a double has. */
const quotientDigits = 40;

/**
 * The sum of `rewards` over `successAt`, rounded once. A sum that reaches `successAt` within the tolerance gives 1. NaN and infinities
 * stay what they are; `successAt` is above 0.
 */
export function episodeReward(rewards: readonly number[], successAt: number): number {
  const sum = rewards.reduce((total, reward) => total + reward, 0);
  if (!rewards.every(Number.isFinite)) return sum / successAt;
  const value = quotient(exactSum(rewards.map(decimalOf)), decimalOf(successAt));
  const missing = rewards.filter(isFloat32).reduce((total, reward) => total + Math.abs(reward), 0);
  const tolerance = rewardTolerance + (missing / successAt) * float32Rounding;
  return value < 1 && value >= 1 - tolerance ? 1 : value;
}

/** Whether a reward is most likely a float32 number that a server widened, such as 0.699999988079071 for 0.7. */
function isFloat32(reward: number): boolean {
  const digits = String(decimalOf(reward).digits).replace(/^-|0+$/g, '');
  return digits.length > writtenDigits && Math.fround(reward) === reward;
}

/** The shortest decimal number that reads back as `value`: what the server wrote, up to 15 digits. */
function decimalOf(value: number): Decimal {
  const [mantissa = '0', exponent = '0'] = String(value).split('e');
  const [whole = '0', fraction = ''] = mantissa.split('.');
  return { digits: BigInt(whole + fraction), scale: fraction.length - Number(exponent) };
}

function exactSum(decimals: readonly Decimal[]): Decimal {
  const scale = Math.max(0, ...decimals.map((decimal) => decimal.scale));
  return { digits: decimals.reduce((sum, one) => sum + one.digits * power(scale - one.scale), 0n), scale };
}

function quotient(dividend: Decimal, divisor: Decimal): number {
  const length = ({ digits }: Decimal): number => String(digits).length;
  const more = Math.max(0, quotientDigits + length(divisor) - length(dividend));
  const raised = dividend.digits * power(more);
  const whole = raised / divisor.digits;
  const rest = raised % divisor.digits === 0n ? '' : '1';
  // Reading the decimal number rounds once. The added digit for the rest prevents a false tie.
  const scale = dividend.scale - divisor.scale + more + rest.length;
  return Number(`${whole}${rest}e${-scale}`);
}

function power(exponent: number): bigint {
  return 10n ** BigInt(exponent);
}

/** Rewards that differ by less are equal. Sums and quotients of a server round, so that ten times 0.1 may come as 0.9999999999999999. */
export const rewardTolerance = 1e-9;

/** Only a full reward, 1 or more, is a pass; rewards may be any finite number. The one comparison of a reward with a full one. */
export function isPass(reward: number): boolean {
  return reward >= 1 - rewardTolerance;
}
