// Shows how much of its budget a run has used. The budget comes from the run's newest start.
import { limitsOf, servedLines, usedOf, type BudgetLimit } from '../spec/budget.js';
import type { OwnerRecord, RunRecord } from '../spec/records/run-records.js';
import type { UpdateRecord } from '../spec/records/update.js';
import { spentInAll } from '../rl/spending.js';
import { percent } from './format.js';
import { table } from './html.js';

interface UsedLimit extends Pick<BudgetLimit, 'name' | 'limit'> {
  spent: number;
}

interface Spender {
  record: RunRecord;
  /** Steps 1…n in order. */
  updates: readonly UpdateRecord[];
  owners: readonly OwnerRecord[];
}

/** Use up to the newest step, or up to `until` (ISO 8601) if that is later. Empty if no limit is set. */
function usedLimits({ record, updates, owners }: Spender, until?: string): UsedLimit[] {
  const budget = owners.at(-1)?.observed.budget;
  if (!budget) return [];
  const newest = updates.filter(({ identity }) => identity.run === record.run).at(-1)?.observed.committed_at;
  const { started_at } = record.observed;
  const wall = [newest, until].map((time) => Date.parse(time ?? started_at) - Date.parse(started_at));
  const spent = { ...spentInAll(record.run, updates), wall_seconds: Math.max(0, ...wall) / 1000 };
  return limitsOf(budget).map((one) => ({ name: one.name, limit: one.limit, spent: usedOf(one, spent) }));
}

export function budgetIsSpent(spender: Spender, until?: string): boolean {
  return usedLimits(spender, until).some(({ spent, limit }) => spent >= limit);
}

/** The report warns when this share of a limit is used, as `status` does. */
const warnFrom = 0.8;

/** HTML: the limits, and what was sent to a Tinker server. Null if there is neither. */
export function budgetTable(spender: Spender): string | null {
  const tables = [limitTable(spender), servedTable(spender)].filter((one) => one !== null);
  return tables.length === 0 ? null : tables.join('');
}

function servedTable({ record, updates, owners }: Spender): string | null {
  const { served } = spentInAll(record.run, updates);
  if (!served) return null;
  const lines = servedLines(served, owners.at(-1)?.observed.budget?.usd_per_million);
  return table(lines, [
    ['sent to the server', ({ kind }) => (kind === 'saves' ? kind : `${kind} tokens`)],
    ['number', ({ number }) => number.toLocaleString('en'), 'figure'],
    ['USD', ({ usd }) => (usd === undefined ? '–' : usd.toFixed(4)), 'figure'],
  ]);
}

function limitTable(spender: Spender): string | null {
  const limits = usedLimits(spender);
  if (limits.length === 0) return null;
  const rows = table(limits, [
    ['limit', ({ name }) => `<code>${name}</code>`],
    ['used', ({ spent }) => String(Number(spent.toPrecision(4))), 'figure'],
    ['of', ({ limit }) => String(limit), 'figure'],
    ['share', ({ spent, limit }) => percent(spent / limit), 'figure'],
  ]);
  const warnings = limits
    .filter(({ spent, limit }) => spent >= warnFrom * limit)
    .map(({ name, spent, limit }) => `<code>${name}</code> is ${spent >= limit ? '' : 'nearly '}spent.`);
  return warnings.length === 0 ? rows : `${rows}<p><strong>${warnings.join(' ')}</strong></p>`;
}
