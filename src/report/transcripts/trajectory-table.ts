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
    ['environment', (row) => escapeHtml(row.environment)],
    ['in', ({ where }) => where],
    ['episodes', ({ counts }) => whole(counts.episodes), 'figure'],
    [
      'turns: mean · p50 · p95',
      ({ counts }) =>
        `${(turnsInAll(counts) / Math.max(1, counts.episodes)).toFixed(1)} · ${turnsAt(counts, 0.5)} · ${turnsAt(counts, 0.95)}`,
      'figure',
    ],
    ['calls a turn', ({ counts }) => (counts.calls / Math.max(1, turnsInAll(counts))).toFixed(2), 'figure'],
    [
      'turns with an error',
      (row) => linked(row, row.counts.errors, turnsInAll(row.counts), 'with=toolError'),
      'figure',
    ],
    ['repeating', (row) => linked(row, row.counts.repeating, row.counts.episodes, 'with=repeated'), 'figure'],
    [
      'premature done',
      (row) => linked(row, premature(row.counts), row.counts.episodes, 'with=premature'),
      'figure',
    ],
    ['cut off', (row) => linked(row, cutOff(row.counts), row.counts.episodes, 'with=cutOff'), 'figure'],
    ['learning signal', ({ counts: { groups } }) => share(groups.varied, groups.compared), 'figure'],
    [
      'unknown',
      (row) => linked(row, unknownOutcomes(row.counts), row.counts.episodes, 'outcome=unknown'),
      'figure',
    ],
  ]);
  return (
    `<div class="dense">${body}</div><p class="quiet">${rulesText(rows, analysis)}</p>` +
    patternTable(analysis, rows) +
    unknownTable(rows)
  );
}

function rowsOf({ training, newest }: TrajectoryAnalysis): Row[] {
  const names = [...new Set([...training.keys(), ...newest.keys()])].sort();
  const rowsFor = (
    environment: string,
    filter: string | null,
    counts: (where: Row['where']) => TrajectoryCounts | undefined,
  ): Row[] =>
    (['training', 'newest'] as const).flatMap((where) => {
      const counted = counts(where);
      return counted && counted.episodes > 0 ? [{ environment, filter, where, counts: counted }] : [];
    });
  const parts = { training, newest };
  const rows = names.flatMap((name) => rowsFor(name, name, (where) => parts[where].get(name)));
  if (names.length < 2) return rows;
  const all = rowsFor('all', null, (where) =>
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
    ['environment', (row) => escapeHtml(row.environment)],
    [
      'tool',
      ({ tool }) =>
        tool === null
          ? '<span class="quiet">no valid call</span>'
          : `<code class="tool">${escapeHtml(tool.slice(0, 80)).replaceAll('_', '_<wbr>')}</code>`,
    ],
    ['message', ({ message }) => `<span class="wrap">${escapeHtml(message)}</span>`],
    analysis.newest.size === 0 ? null : ['newest', ({ newest }) => whole(newest), 'figure'],
    ['training', ({ training }) => whole(training), 'figure'],
    ['', ({ example }) => `<a href="${escapeHtml(`#t=${encodeURIComponent(example)}`)}">example</a>`],
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
      ['environment', ({ row }) => escapeHtml(row.environment)],
      ['in', ({ row }) => row.where],
      ['reason', ({ reason }) => `<span class="wrap">${escapeHtml(reason)}</span>`],
      ['episodes', ({ count }) => whole(count), 'figure'],
    ]) +
    (left > 0 ? `<p class="quiet">… and ${whole(left)} more.</p>` : '')
  );
}
