// A sweep's comparison as its own page, or as sections of the report. The look is the same in both, on screens of all sizes and on paper.
import { atBothWidths, lineChart, type ChartSeries, type UnsizedChart } from '../report/charts/chart.js';
import { whole } from '../report/format.js';
import { type Column, escapeHtml, page, section, table, tile } from '../report/html.js';
import { styleSheet } from '../report/report-style.js';
import { placeText } from './checkpoint-selection.js';
import {
  verdictRule,
  type Difference,
  type Figures,
  type StateComparison,
  type SuiteComparison,
  type SweepComparison,
} from './comparison.js';
import {
  alarmRule,
  alarmTexts,
  alarmWords,
  alsoText,
  changesText,
  countedText,
  differenceText,
  environmentsText,
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
import { intervalBar, intervalBarStyle, reachOf } from './interval-bar.js';
import type { TaskChange } from './task-changes.js';

/** The page runs and requests nothing. The browser enforces this, whatever text the page contains. */
const contentPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const claimsShown = 40;
/** How many changes within noise are listed. */
const othersShown = 8;

export function renderComparison(sweep: SweepComparison): string {
  return page({
    title: `${sweep.name} · Longhaul sweep`,
    policy: contentPolicy,
    style: styleSheet + comparisonStyle,
    body: [header(sweep), comparisonSections(sweep)],
  });
}

/** Sections for another page, which must include `comparisonStyle` after the report's style. */
function comparisonSections({ suites, skipped }: SweepComparison): string {
  const sections = suites.map((suite) => section(`Suite ${escapeHtml(suite.label)}`, suiteBody(suite)));
  if (skipped.length > 0) {
    const items = skipped.map((one) => `<li>${escapeHtml(skippedText(one))}</li>`).join('');
    sections.push(section('Left out', `<ul>${items}</ul>`));
  }
  return sections.join('\n');
}

const comparisonStyle = `${intervalBarStyle}
.alarm { border-left: 4px solid var(--bad); background: var(--card); padding: 8px 14px; margin: 12px 0; border-radius: 0 6px 6px 0; }
.alarm b { color: var(--bad); } .change { font-variant-numeric: tabular-nums; white-space: nowrap; }
.states table { font-size: 13.5px; } .states th, .states td { padding-right: 10px; }
.states td { white-space: nowrap; vertical-align: middle; } .states .said { display: flex; flex-direction: column; align-items: start; gap: 2px; } .states .key { white-space: normal; overflow-wrap: anywhere; min-width: 16ch; }
.line.reference { stroke: var(--final); stroke-width: 1.5; stroke-dasharray: 5 4; } .curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); gap: 16px 24px; margin-bottom: 16px; }
.run0 { --line: #2f6fde; } .run1 { --line: #8e44ad; } .run2 { --line: #16794c; } .run3 { --line: #b8860b; } .run4 { --line: #c2185b; } .run5 { --line: #0f8b8d; } .run6 { --line: #6b7a90; } .run7 { --line: #7a4b1e; }
.line[class*=run] { stroke: var(--line); } .dot[class*=run] { fill: var(--line); } .line.run1, .line.run5 { stroke-dasharray: 7 3; } .line.run2, .line.run6 { stroke-dasharray: 2 3; } .line.run3, .line.run7 { stroke-dasharray: 9 3 2 3; }
.status.better { color: var(--good); } .status.worse, .status.regressed { color: var(--bad); } .status.suspected { color: var(--warn); }
@media print { .states table { font-size: 10.5px; } details.compared { display: block; } details.compared::details-content { content-visibility: visible; display: block; block-size: auto; } .alarm { border: 1px solid; } }
`;

function header({ name, project, suites, skipped }: SweepComparison): string {
  const states = new Set(suites.flatMap((suite) => suite.states.map(({ state }) => state)));
  const figures = suites.flatMap((suite) => suite.states.map(({ all }) => all));
  const sum = (of: (one: Figures) => number): number => figures.reduce((total, one) => total + of(one), 0);
  const alarms = suites.flatMap(alarmTexts);
  const watched = suites.some(({ regression }) => regression !== null);
  const tiles = [
    tile('states', whole(states.size)),
    tile('suites', whole(suites.length)),
    tile('episodes', whole(sum(({ episodes }) => episodes))),
    tile('unknown outcomes', whole(sum(({ unknown }) => unknown))),
    tile('regressions', watched ? whole(alarms.length) : 'no baseline'),
    ...(skipped.length === 0 ? [] : [tile('checkpoints left out', whole(skipped.length))]),
  ];
  return (
    `<header><div class="title"><h1>${escapeHtml(name)}</h1></div>` +
    `<p class="quiet">sweep of ${escapeHtml(project)}</p><div class="tiles">${tiles.join('')}</div></header>`
  );
}

function suiteBody(suite: SuiteComparison): string {
  if (suite.states.length === 0) return '<p class="quiet">Nothing was played.</p>';
  const newest = newestStates(suite);
  return [
    `<p class="quiet">${escapeHtml(suiteText(suite))}; compared with ${escapeHtml(referenceText(suite))}.</p>`,
    ...[gapText(suite)].flatMap((text) =>
      text === null ? [] : [`<p class="alarm"><b>!</b> ${escapeHtml(text)}.</p>`],
    ),
    ...alarmTexts(suite).map((text) => `<p class="alarm"><b>▼ Regression.</b> ${escapeHtml(text)}.</p>`),
    curves(suite),
    stateTable(suite),
    `<p class="quiet">pass@1: mean over tasks of the share of graded samples that passed. Changes in points, paired by task, with 95 % ` +
      `intervals from resampled tasks; ● the interval excludes 0, ○ it contains 0. Unknown outcomes (broken environments) are counted ` +
      `separately and never scored. Verdict — ${escapeHtml([verdictRule, ...[alarmRule(suite)].filter((rule) => rule !== null)].join('. '))}.</p>`,
    largestKTable(suite),
    environmentTable(suite),
    ...newest.map((state) => templateTable(state)),
    ...newest.map((state) => taskTable(suite, state)),
  ].join('\n');
}

/** How many lines one chart can distinguish, by colour, dashes and the order of the legend. */
const linesTogether = 8;
const heights = { wide: 260, narrow: 260 };

/** One chart of all runs, then one chart for each run on the same axes. */
function curves(suite: SuiteComparison): string {
  const runs = [...new Set(suite.states.map(({ run }) => run))];
  const drawn = runs.filter((run) => suite.states.filter((one) => one.run === run).length > 1);
  if (drawn.length === 0) return '';
  const steps = drawn.flatMap((run) => suite.states.filter((one) => one.run === run)).map(({ step }) => step);
  const xRange: [number, number] = [Math.min(...steps), Math.max(...steps)];
  const k = largestK(suite);
  const note = `<p class="quiet">${escapeHtml(environmentsText)}</p>`;
  const chart = (of: string, series: readonly ChartSeries[]): UnsizedChart => ({
    description: `pass@1 of ${of} on ${suite.label}, by step`,
    ...{ xRange, yRange: [0, 1], bands: [] },
    yFormat: (value) => `${Math.round(value * 100)} %`,
    series: series.filter(({ points }) => points.length > 0),
  });
  const byItself = (run: string): UnsizedChart =>
    chart(run, [
      ...referenceLine(suite, xRange),
      ...(k === null
        ? []
        : [
            {
              name: `pass@${k}`,
              style: 'smooth',
              draw: 'line' as const,
              points: pointsOf(suite, run, largestPass),
            },
          ]),
      { name: 'pass@1', style: 'interval', draw: 'dots', points: pointsOf(suite, run, passAt1) },
    ]);
  if (drawn.length === 1) {
    const [run] = drawn as [string];
    return `<figure><figcaption>${escapeHtml(run)}</figcaption>${atBothWidths(byItself(run), heights)}</figure>${note}`;
  }
  const lines = drawn.slice(0, linesTogether).map((run, index) => ({
    ...{ name: run, style: `run${index}`, draw: 'dots' as const },
    points: pointsOf(suite, run, passAt1),
  }));
  const more = drawn.length - lines.length;
  const single = drawn.map(
    (run) =>
      `<figure><figcaption>${escapeHtml(run)}</figcaption>` +
      `${lineChart({ ...byItself(run), size: { width: 440, height: 220 }, legend: true })}</figure>`,
  );
  return (
    `<figure><figcaption>pass@1 of ${more > 0 ? `the first ${whole(lines.length)} runs` : 'all runs'}</figcaption>` +
    `${atBothWidths(chart('all runs', [...referenceLine(suite, xRange), ...lines]), heights)}</figure>${note}` +
    details(
      `each of the ${whole(drawn.length)} runs in its own chart, on the same axes`,
      `<div class="curves">${single.join('')}</div>`,
    )
  );
}

const passAt1 = ({ all }: StateComparison): number | null => all.pass_at_1;

function pointsOf(
  suite: SuiteComparison,
  run: string,
  of: (state: StateComparison) => number | null,
): ChartSeries['points'] {
  return suite.states.flatMap((state) => {
    const y = state.run === run ? of(state) : null;
    return y === null ? [] : [{ x: state.step, y }];
  });
}

function referenceLine(suite: SuiteComparison, xRange: readonly number[]): ChartSeries[] {
  const base = suite.states.find(({ state }) => state === suite.reference?.state)?.all.pass_at_1 ?? null;
  if (base === null) return [];
  const name = `pass@1 of ${suite.reference?.named ? 'the baseline' : 'the first state'}`;
  return [{ name, style: 'reference', draw: 'line', points: xRange.map((x) => ({ x, y: base })) }];
}

function stateTable(suite: SuiteComparison): string {
  const reach = reachOf(suite.states.map(({ versus }) => versus?.all));
  const k = largestK(suite);
  const isReference = (state: StateComparison): boolean => state.versus === null;
  const name = suite.reference?.named ? 'baseline' : 'reference';
  const columns: (Column<StateComparison> | null)[] = [
    [
      'state',
      (state) => {
        const also = alsoText(state);
        return `${escapeHtml(placeText(state))}${also === null ? '' : `<br><span class="quiet">${escapeHtml(also)}</span>`}`;
      },
    ],
    ['pass@1', ({ all }) => shareText(all.pass_at_1), 'figure'],
    k === null ? null : [`pass@${k}`, (state) => shareText(largestPass(state)), 'figure'],
    ['change [95 %]', (state) => (isReference(state) ? '' : change(state.versus?.all ?? null)), 'figure'],
    [`−${reach * 100} … 0 … +${reach * 100}`, (state) => bar(state.versus?.all ?? null, reach)],
    [
      'verdict',
      (state) =>
        isReference(state)
          ? `<span class="quiet">${name}</span>`
          : `<span class="said">${verdict(state.versus?.all ?? null)}${alarm(state)}</span>`,
    ],
    ...figureColumns<StateComparison>(({ all }) => all),
  ];
  const all = `<div class="states">${table(suite.states, columns)}</div>`;
  if (suite.states.length <= rowsUnfolded) return all;
  const first = `<div class="states">${table(foremost(suite), columns)}</div>`;
  return `${first}${details(`all ${whole(suite.states.length)} states`, all)}`;
}

/** Rows beyond this number are folded, because people do not read that many. */
const rowsUnfolded = 40;

/** The reference, regressed states, and the newest state of each run, in the sweep's order. */
function foremost(suite: SuiteComparison): StateComparison[] {
  const newest = newestStates(suite);
  const regressed = ({ versus }: StateComparison): boolean =>
    versus?.alarms.some(({ level }) => level === 'regressed') ?? false;
  const chosen = suite.states.filter((one) => one.versus === null || newest.includes(one) || regressed(one));
  return chosen.slice(0, rowsUnfolded);
}

/** Compares pass@k for the largest k: what a state can solve at all, whereas pass@1 says what it usually solves. */
function largestKTable(suite: SuiteComparison): string {
  const k = largestK(suite);
  const rows = suite.states.filter(({ versus }) => versus !== null);
  if (k === null || rows.length === 0) return '';
  const reach = reachOf(rows.map(({ versus }) => versus?.largest_k));
  const body = table(rows, [
    ['state', (state) => escapeHtml(placeText(state))],
    [`pass@${k}`, (state) => shareText(largestPass(state)), 'figure'],
    ['change [95 %]', ({ versus }) => change(versus?.largest_k ?? null), 'figure'],
    [`−${reach * 100} … 0 … +${reach * 100}`, ({ versus }) => bar(versus?.largest_k ?? null, reach)],
    ['verdict', ({ versus }) => verdict(versus?.largest_k ?? null)],
  ]);
  return details(
    `pass@${k}: at least one of ${k} samples of a task passes`,
    `<div class="states">${body}</div>`,
  );
}

interface EnvironmentRow {
  name: string;
  state: StateComparison;
  figures: Figures;
  difference: Difference | null;
}

function environmentTable(suite: SuiteComparison): string {
  const names = [...new Set(suite.states.flatMap(({ environments }) => Object.keys(environments)))].sort();
  if (names.length < 2) return '';
  const rows = names.flatMap((name) =>
    suite.states.flatMap((state): EnvironmentRow[] => {
      const figures = state.environments[name];
      if (figures === undefined) return [];
      return [{ name, state, figures, difference: state.versus?.environments[name] ?? null }];
    }),
  );
  const reach = reachOf(rows.map(({ difference }) => difference));
  const body = table(rows, [
    ['environment', ({ name }) => escapeHtml(name)],
    ['state', ({ state }) => escapeHtml(placeText(state))],
    ['pass@1', ({ figures }) => shareText(figures.pass_at_1), 'figure'],
    ['change [95 %]', ({ state, difference }) => (state.versus === null ? '' : change(difference)), 'figure'],
    [`−${reach * 100} … 0 … +${reach * 100}`, ({ difference }) => bar(difference, reach)],
    ['verdict', ({ state, difference }) => (state.versus === null ? '' : verdict(difference))],
    ...figureColumns<EnvironmentRow>(({ figures }) => figures),
  ]);
  return details(`by environment (${whole(names.length)})`, `<div class="states">${body}</div>`);
}

function templateTable(state: StateComparison): string {
  const rows = Object.entries(state.versus?.templates ?? {});
  if (rows.length < 2) return '';
  const reach = reachOf(rows.map(([, difference]) => difference));
  const weakest = rows.sort(([, a], [, b]) => (a?.estimate ?? 0) - (b?.estimate ?? 0));
  const body = table(weakest, [
    ['template', ([name]) => escapeHtml(name)],
    ['tasks', ([, one]) => whole(one?.tasks ?? 0), 'figure'],
    ['change [95 %]', ([, one]) => change(one), 'figure'],
    [`−${reach * 100} … 0 … +${reach * 100}`, ([, one]) => bar(one, reach)],
    ['verdict', ([, one]) => verdict(one)],
  ]);
  return details(
    `${escapeHtml(placeText(state))} by task template, the largest loss first`,
    `<div class="states">${body}</div>`,
  );
}

function taskTable(suite: SuiteComparison, state: StateComparison): string {
  const changes = state.versus?.tasks ?? [];
  if (changes.length === 0) return '';
  const few = tooFewSamples(suite);
  const claims = changes.filter(({ verdict: said }) => said !== 'within noise');
  const shown = [
    ...claims.slice(0, claimsShown),
    ...changes.slice(claims.length, claims.length + othersShown),
  ];
  const body = table<TaskChange>(shown, [
    ['task', ({ task_key }) => `<span class="key">${escapeHtml(task_key)}</span>`],
    ['before', ({ before }) => countedText(before), 'figure'],
    ['after', ({ after }) => countedText(after), 'figure'],
    ['by chance', ({ chance }) => chanceText(chance), 'figure'],
    [
      'verdict',
      ({ verdict: said }) =>
        said === 'within noise'
          ? '<span class="quiet">within noise</span>'
          : `<span class="status ${said}">${said === 'better' ? '▲' : '▼'} ${said}</span>`,
    ],
  ]);
  const more = changes.length - shown.length;
  return details(
    `${escapeHtml(placeText(state))} by task: ${changesText(changes)}`,
    `<div class="states">${body}</div>` +
      (more > 0 ? `<p class="quiet">… and ${whole(more)} more tasks that moved.</p>` : '') +
      '<p class="quiet">Passes of graded samples. By chance: how often two states that solve the task equally often would differ this much ' +
      '(Fisher’s exact test); about one in twenty verdicts “better” and “worse” is false. ' +
      `${few ?? ''}</p>`,
  );
}

function details(summary: string, body: string): string {
  return `<details class="compared"><summary>${summary}</summary>${body}</details>`;
}

function figureColumns<Row>(of: (row: Row) => Figures): Column<Row>[] {
  return [
    ['turns', (row) => (of(row).episodes === 0 ? '–' : of(row).mean_turns.toFixed(1)), 'figure'],
    ['tool errors', (row) => shareText(of(row).tool_error_rate), 'figure'],
    [
      'unknown',
      (row) => {
        const { unknown, missing } = of(row);
        return (
          whole(unknown) +
          (missing === 0 ? '' : `<br><span class="quiet">${whole(missing)} not played</span>`)
        );
      },
      'figure',
    ],
  ];
}

const change = (difference: Difference | null): string =>
  `<span class="change">${escapeHtml(differenceText(difference))}</span>`;

const bar = (difference: Difference | null, reach: number): string =>
  difference === null ? '' : intervalBar(difference, reach);

function verdict(difference: Difference | null): string {
  if (difference === null) return '–';
  const sign = { improving: '▲ ', declining: '▼ ', flat: '', unclear: '' }[difference.verdict];
  return `<span class="status ${difference.verdict}">${sign}${difference.verdict}</span>`;
}

/** The worst alarm among the state's scopes; null if no alarm needs attention. */
function alarm({ versus }: StateComparison): string {
  const level = (['regressed', 'suspected'] as const).find((one) =>
    versus?.alarms.some((found) => found.level === one),
  );
  return level === undefined ? '' : `<span class="status ${level}">${alarmWords[level]}</span>`;
}

function chanceText(chance: number): string {
  return chance < 0.001 ? '< 0.1 %' : `${(chance * 100).toFixed(1)} %`;
}
