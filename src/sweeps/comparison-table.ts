// A sweep's comparison as plain text. It uses only words and signs, no colour.
import { whole } from '../report/format.js';
import { placeText } from './checkpoint-selection.js';
import {
  verdictRule,
  type Figures,
  type StateComparison,
  type SuiteComparison,
  type SweepComparison,
} from './comparison.js';
import {
  alarmRule,
  alarmTexts,
  alsoText,
  changesText,
  countedText,
  differenceText,
  gapText,
  largestK,
  largestPass,
  newestStates,
  referenceText,
  shareText,
  skippedText,
  suiteText,
  tooFewSamples,
} from './comparison-words.js';

const tasksShown = 10;

/** The text ends with a line feed. */
export function comparisonText({ name, suites, skipped }: SweepComparison): string {
  const parts = [
    ...suites.map((suite) => suiteSection(name, suite)),
    ...(suites.some(({ states }) => states.length > 0) ? [`${verdictRule}.`] : []),
    ...(skipped.length === 0
      ? []
      : [
          [`left out: ${whole(skipped.length)}`, ...skipped.map((one) => `  ${skippedText(one)}`)].join('\n'),
        ]),
  ];
  return `${printable(parts.join('\n\n'))}\n`;
}

function suiteSection(name: string, suite: SuiteComparison): string {
  if (suite.states.length === 0) return `${name} · ${suite.label}: nothing was played`;
  const newest = newestStates(suite);
  const severalEnvironments = Object.keys(suite.states[0]?.environments ?? {}).length > 1;
  return [
    `${name} · ${suite.label}: ${suiteText(suite)}, against ${referenceText(suite)}`,
    ...[gapText(suite)].flatMap((text) => (text === null ? [] : [`! ${text}`])),
    ...stateTable(suite),
    ...alarmTexts(suite).map((text) => `! ${text}`),
    ...largestKLines(suite, newest),
    ...(severalEnvironments && newest.length > 0 ? ['', ...environmentTable(newest)] : []),
    ...newest.flatMap((state) => ['', ...taskLines(suite, state)]),
    ...[alarmRule(suite)].flatMap((text) => (text === null ? [] : ['', `${text}.`])),
  ].join('\n');
}

function stateTable(suite: SuiteComparison): string[] {
  const k = largestK(suite);
  const head = [
    'state',
    'pass@1',
    ...(k === null ? [] : [`pass@${k}`]),
    'change in points [95 %]',
    'verdict',
    'turns',
    'tool errors',
    'unknown',
  ];
  const rows = suite.states.map((state) => [
    [placeText(state), ...[alsoText(state)].flatMap((also) => (also === null ? [] : [`(${also})`]))].join(
      ' ',
    ),
    shareText(state.all.pass_at_1),
    ...(k === null ? [] : [shareText(largestPass(state))]),
    state.versus === null ? '' : differenceText(state.versus.all),
    state.versus === null
      ? suite.reference?.named
        ? 'baseline'
        : 'reference'
      : (state.versus.all?.verdict ?? '–'),
    ...played(state.all),
  ]);
  return aligned([head, ...rows], k === null ? [1, 4, 5, 6] : [1, 2, 5, 6, 7]);
}

/** Compares pass@k for the largest k: what a state can solve at all, whereas pass@1 says what it usually solves. */
function largestKLines(suite: SuiteComparison, states: readonly StateComparison[]): string[] {
  const k = largestK(suite);
  if (k === null || states.length === 0) return [];
  return [
    '',
    ...states.map((state) => {
      const difference = state.versus?.largest_k ?? null;
      return `pass@${k} of ${placeText(state)}: change in points ${differenceText(difference)}, ${difference?.verdict ?? '–'}`;
    }),
  ];
}

function environmentTable(states: readonly StateComparison[]): string[] {
  const head = [
    'environment',
    'state',
    'pass@1',
    'change in points [95 %]',
    'verdict',
    'turns',
    'tool errors',
    'unknown',
  ];
  const names = [...new Set(states.flatMap(({ environments }) => Object.keys(environments)))].sort();
  const rows = names.flatMap((name) =>
    states.flatMap((state) => {
      const figures = state.environments[name];
      if (figures === undefined) return [];
      const difference = state.versus?.environments[name] ?? null;
      const [place, rate] = [placeText(state), shareText(figures.pass_at_1)];
      return [
        [name, place, rate, differenceText(difference), difference?.verdict ?? '–', ...played(figures)],
      ];
    }),
  );
  return aligned([head, ...rows], [2, 5, 6, 7]);
}

function played({ mean_turns, tool_error_rate, unknown, missing, episodes }: Figures): string[] {
  const turns = episodes === 0 ? '–' : mean_turns.toFixed(1);
  const not = missing === 0 ? '' : ` (${whole(missing)} not played)`;
  return [turns, shareText(tool_error_rate), `${whole(unknown)}${not}`];
}

function taskLines(suite: SuiteComparison, state: StateComparison): string[] {
  const changes = state.versus?.tasks ?? [];
  const claimed = changes.filter(({ verdict }) => verdict !== 'within noise');
  const shown = claimed.slice(0, tasksShown);
  const few = tooFewSamples(suite);
  return [
    `tasks of ${placeText(state)}: ${changesText(changes)}`,
    ...(few === null ? [] : [`  ${few}`]),
    ...aligned(
      shown.map(({ verdict, task_key, before, after }) => [
        `  ${verdict}`,
        task_key,
        `${countedText(before)} → ${countedText(after)}`,
      ]),
      [],
    ),
    ...(claimed.length > shown.length ? [`  … and ${whole(claimed.length - shown.length)} more`] : []),
  ];
}

/** Columns, two spaces apart; the columns listed in `figures` are aligned to the right. */
function aligned(rows: readonly (readonly string[])[], figures: readonly number[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => [...(row[column] ?? '')].length)),
  );
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const air = ' '.repeat((widths[column] ?? 0) - [...cell].length);
        return figures.includes(column) ? air + cell : cell + air;
      })
      .join('  ')
      .trimEnd(),
  );
}

/** Replaces control characters: names of tasks come from data, and must not control the terminal. */
function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Bidi_Control}]/gu, (one) => (one === '\n' ? one : '�'));
}
