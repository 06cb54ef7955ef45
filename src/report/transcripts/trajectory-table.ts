// Says in words and figures how episodes went, over training and in the newest evaluation, by environment. Figures link to the transcripts
// that they count.
import { percent, whole } from '../format.js';
import { ranked, type ErrorPattern } from './error-patterns.js';
import { escapeHtml, table } from '../html.js';
import {
  cutOff,
  noTrajectories,
  plusTrajectories,
  premature,
  turnsAt,
  turnsInAll,
  unknownOutcomes,
  type TrajectoryCounts,
} from './trajectory-analysis.js';

export interface TrajectoryAnalysis {
  /** Counts by environment. */
  training: Map<string, TrajectoryCounts>;
  newest: Map<string, TrajectoryCounts>;
  /** For example `the final evaluation after step 120`; null without an evaluation. */
  newestName: string | null;
}

interface Row {
  environment: string;
  /** Null in the row for all environments. */
  filter: string | null;
  where: 'training' | 'newest';
  counts: TrajectoryCounts;
}

const patternsShown = 12;
const reasonsShown = 12;

export function trajectoryTables(analysis: TrajectoryAnalysis): string {
  const rows = rowsOf(analysis);
  if (rows.length === 0) return '<p class="quiet">No finished episodes yet.</p>';
  const share = (part: number, of: number): string => (of === 0 ? '–' : percent(part / of));
  const linked = (row: Row, count: number, of: number, filter: string): string =>
    count === 0 ? share(count, of) : `<a href="${addressOf(row, filter)}">${share(count, of)}</a>`;
  const body = table(rows, [
    { title: 'environment', cell: (row) => escapeHtml(row.environment) },
    { title: 'in', cell: ({ where }) => where },
    { title: 'episodes', cell: ({ counts }) => whole(counts.episodes), figure: true },
    {
      title: 'turns: mean · p50 · p95',
      cell: ({ counts }) =>
        `${(turnsInAll(counts) / Math.max(1, counts.episodes)).toFixed(1)} · ${turnsAt(counts, 0.5)} · ${turnsAt(counts, 0.95)}`,
      figure: true,
    },
    {
      title: 'calls a turn',
      cell: ({ counts }) => (counts.calls / Math.max(1, turnsInAll(counts))).toFixed(2),
      figure: true,
    },
    {
      title: 'turns with an error',
      cell: (row) => linked(row, row.counts.errors, turnsInAll(row.counts), 'with=toolError'),
      figure: true,
    },
    {
      title: 'repeating',
      cell: (row) => linked(row, row.counts.repeating, row.counts.episodes, 'with=repeated'),
      figure: true,
    },
    {
      title: 'premature done',
      cell: (row) => linked(row, premature(row.counts), row.counts.episodes, 'with=premature'),
      figure: true,
    },
    {
      title: 'cut off',
      cell: (row) => linked(row, cutOff(row.counts), row.counts.episodes, 'with=cutOff'),
      figure: true,
    },
    {
      title: 'learning signal',
      cell: ({ counts: { groups } }) => share(groups.varied, groups.compared),
      figure: true,
    },
    {
      title: 'unknown',
      cell: (row) => linked(row, unknownOutcomes(row.counts), row.counts.episodes, 'outcome=unknown'),
      figure: true,
    },
  ]);
  return (
    `<div class="dense">${body}</div><p class="quiet">${rulesText(rows, analysis)}</p>` +
    patternTable(analysis, rows) +
    unknownTable(rows)
  );
}

function rowsOf({ training, newest }: TrajectoryAnalysis): Row[] {
  const names = [...new Set([...training.keys(), ...newest.keys()])].sort();
  const of = (
    environment: string,
    filter: string | null,
    counts: (where: Row['where']) => TrajectoryCounts | undefined,
  ): Row[] =>
    (['training', 'newest'] as const).flatMap((where) => {
      const counted = counts(where);
      return counted && counted.episodes > 0 ? [{ environment, filter, where, counts: counted }] : [];
    });
  const parts = { training, newest };
  const rows = names.flatMap((name) => of(name, name, (where) => parts[where].get(name)));
  if (names.length < 2) return rows;
  const all = of('all', null, (where) =>
    [...parts[where].values()].reduce(plusTrajectories, noTrajectories()),
  );
  return [...rows, ...all];
}

function addressOf({ filter, where }: Row, more: string): string {
  const environment = filter === null ? '' : `&env=${encodeURIComponent(filter)}`;
  return escapeHtml(`#in=${where}${environment}&${more}`);
}

function rulesText(rows: readonly Row[], { newestName }: TrajectoryAnalysis): string {
  const sum = (of: (counts: TrajectoryCounts) => number): number =>
    rows.filter(({ filter }) => filter !== null).reduce((total, { counts }) => total + of(counts), 0);
  const malformed = sum((counts) => counts.malformed);
  return [
    ...(newestName === null ? [] : [`Newest: ${escapeHtml(newestName)}.`]),
    `Turns with an error: refused calls, and tags that hold no valid call (${whole(malformed)} of ${whole(sum((counts) => counts.errors))}).`,
    'Repeating: episodes that make the same call (tool and arguments) twice in a row, or three times in all.',
    `Premature done: not passed, and ended by the model without any call (${whole(sum((counts) => counts.doneWithoutCall))}) or after calls that were all ` +
      `refused (${whole(sum((counts) => counts.doneAfterErrors))}), so that nothing can have changed.`,
    'Cut off: by the limit of turns or of tokens.',
    'Learning signal: of the groups with two or more graded samples, those whose rewards differ.',
  ].join(' ');
}

interface PatternRow extends ErrorPattern {
  environment: string;
  newest: number;
  training: number;
}

function patternTable(analysis: TrajectoryAnalysis, rows: readonly Row[]): string {
  const found = new Map<string, PatternRow>();
  for (const { environment, filter, where, counts } of rows) {
    if (filter === null) continue;
    for (const pattern of ranked(counts.patterns)) {
      const key = JSON.stringify([environment, pattern.tool, pattern.message]);
      const row = found.get(key) ?? { ...pattern, environment, newest: 0, training: 0 };
      row[where] += pattern.count;
      // Prefer an example of the newest policy: only its errors can still be fixed.
      if (where === 'newest') row.example = pattern.example;
      found.set(key, row);
    }
  }
  const patterns = [...found.values()].sort((a, b) => b.newest - a.newest || b.training - a.training);
  if (patterns.length === 0) return '';
  const others = rows.reduce(
    (sum, { filter, counts }) => sum + (filter === null ? 0 : counts.patterns.others),
    0,
  );
  const left = patterns.length - patternsShown;
  const body = table(patterns.slice(0, patternsShown), [
    { title: 'environment', cell: (row) => escapeHtml(row.environment) },
    {
      title: 'tool',
      cell: ({ tool }) =>
        tool === null
          ? '<span class="quiet">no valid call</span>'
          : `<code class="tool">${escapeHtml(tool.slice(0, 80)).replaceAll('_', '_<wbr>')}</code>`,
    },
    { title: 'message', cell: ({ message }) => `<span class="wrap">${escapeHtml(message)}</span>` },
    ...(analysis.newest.size === 0
      ? []
      : [{ title: 'newest', cell: ({ newest }: PatternRow) => whole(newest), figure: true }]),
    { title: 'training', cell: ({ training }) => whole(training), figure: true },
    {
      title: '',
      cell: ({ example }) => `<a href="${escapeHtml(`#t=${encodeURIComponent(example)}`)}">example</a>`,
    },
  ]);
  const more = [
    ...(left > 0 ? [`${whole(left)} rarer patterns are not shown`] : []),
    ...(others > 0 ? [`${whole(others)} further errors had too many different messages to list`] : []),
  ].join('; ');
  return `<h3>Errors by pattern</h3>${body}${more === '' ? '' : `<p class="quiet">${more}.</p>`}`;
}

function unknownTable(rows: readonly Row[]): string {
  const reasons = rows
    .filter(({ filter }) => filter !== null)
    .flatMap((row) => [...row.counts.unknown].map(([reason, count]) => ({ row, reason, count })))
    .sort((a, b) => b.count - a.count);
  if (reasons.length === 0) return '';
  const left = reasons.length - reasonsShown;
  return (
    '<h3>Unknown outcomes by reason</h3>' +
    table(reasons.slice(0, reasonsShown), [
      { title: 'environment', cell: ({ row }) => escapeHtml(row.environment) },
      { title: 'in', cell: ({ row }) => row.where },
      { title: 'reason', cell: ({ reason }) => `<span class="wrap">${escapeHtml(reason)}</span>` },
      { title: 'episodes', cell: ({ count }) => whole(count), figure: true },
    ]) +
    (left > 0 ? `<p class="quiet">… and ${whole(left)} more.</p>` : '')
  );
}
