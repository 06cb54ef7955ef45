// What a run may use, and what it has used. A nearly spent limit shows a warning; a spent one ends the run at the next step boundary.
import type { BudgetLine, CommittedStep, OpenedBudget } from '../../activities/contracts.js';
import { servedLines, sumOfServed, usedOf, type ServedLine } from '../../spec/budget.js';

/** A limit shows a warning from this share of use. */
const warnFrom = 0.8;

export class Budget {
  private spent: OpenedBudget['spent'];

  constructor(private readonly opened: OpenedBudget | undefined) {
    this.spent = opened?.spent ?? { tokens: 0, gpu_seconds: 0 };
  }

  add({ spent }: CommittedStep): void {
    const served = sumOfServed(this.spent.served, spent?.served);
    this.spent = {
      tokens: this.spent.tokens + (spent?.tokens ?? 0),
      gpu_seconds: this.spent.gpu_seconds + (spent?.gpu_seconds ?? 0),
      ...(served ? { served } : {}),
    };
  }

  /** The limits and what is used of them now; null if nothing is limited. */
  lines(): BudgetLine[] | null {
    if (!this.opened) return null;
    const { limits, startedAt } = this.opened;
    const spent = { ...this.spent, wall_seconds: Math.max(0, (Date.now() - Date.parse(startedAt)) / 1000) };
    return limits.map((one) => ({ name: one.name, limit: one.limit, spent: usedOf(one, spent) }));
  }

  /** What was sent to a Tinker server; null if nothing was. */
  served(): ServedLine[] | null {
    const { served } = this.spent;
    return served ? servedLines(served, this.opened?.usd_per_million) : null;
  }
}

export function isSpent({ spent, limit }: BudgetLine): boolean {
  return spent >= limit;
}

/** Used share of a limit, 1 or more if it is spent. */
export function usedShare({ spent, limit }: BudgetLine): number {
  return limit > 0 ? spent / limit : 1;
}

/** One line for each limit that is spent or nearly spent. */
export function budgetNotes(lines: readonly BudgetLine[]): string[] {
  const short = lines.filter(({ spent, limit }) => spent >= warnFrom * limit);
  return short.map((line) => {
    const used = `${figure(line.spent)} of ${figure(line.limit)}`;
    if (isSpent(line)) return `budget.${line.name} is spent (${used}): raise it and start the run again`;
    return `budget.${line.name}: ${Math.floor((100 * line.spent) / line.limit)} % is spent (${used})`;
  });
}

/** `train 12,000 tokens ($0.0084) · prefill … · sample … · saves 4`. */
export function servedNote(lines: readonly ServedLine[]): string {
  return lines
    .map(({ kind, number, usd }) => {
      const what = `${kind} ${figure(number)}${kind === 'saves' ? '' : ' tokens'}`;
      return usd === undefined ? what : `${what} ($${figure(usd)})`;
    })
    .join(' · ');
}

function figure(value: number): string {
  return value.toLocaleString('en', { maximumFractionDigits: 4 });
}
