// The run's report: one HTML page. Most of its transcripts are in files beside it.
import { alertsOfRun, alertTable } from './alerts.js';
import { budgetTable } from './budget.js';
import {
  atBothWidths,
  smoothedParts,
  smoothingWidth,
  type ChartBand,
  type ChartSeries,
  type UnsizedChart,
} from './charts/chart.js';
import { environmentRows, templateRows, type EnvironmentRow } from './environment-table.js';
import { type EvaluationFigure, tasksOf, unfinishedText } from './history/evaluations.js';
import { type Faults, faultTable } from './history/faults.js';
import { percent, points, timeSpan, whole } from './format.js';
import { type Column, escapeHtml, page, quietNotes, section, table, tile } from './html.js';
import { contentPolicy } from './content-policy.js';
import { loraInWords } from './model-facts.js';
import type { ReadEpisodes } from './report-episodes.js';
import { styleSheet } from './report-style.js';
import {
  curriculumInWords,
  type LackingSink,
  missingDeliveriesTable,
  runFacts,
  servedModelsTable,
} from './run-facts.js';
import type { AcceptedChange } from './history/changes.js';
import { baselineOf, beforeAndAfter, type RunHistory } from './history/run-history.js';
import { hasEnded, inWords, positionOf } from './run-position.js';
import { trends } from './charts/trends.js';
import { trajectoryTables } from './transcripts/trajectory-table.js';
import { trajectoryTrends } from './charts/trajectory-trends.js';
import { transcriptViewer } from './transcripts/transcript-viewer.js';
import { countedRegimes, type Regime, regimeOf, regimeRule } from './regime.js';
import { viewerScript } from './transcripts/viewer-script.js';
import { stepsOfChanges } from '../rl/environment-changes.js';
import { nameOfNumerics } from '../spec/records/numerics.js';
import { nothingGraded, passRateText } from '../spec/pass-rate.js';
import { evaluationPlay } from '../spec/schedule.js';
import type { InstanceRecord } from '../spec/records/served-model.js';
import type { UpdateRecord } from '../spec/records/update.js';
import type { RebaseSpec } from '../spec/run-spec.js';
import type { UnfinishedEvaluation } from '../store/evaluations/run-evaluations.js';

interface ReportInput {
  history: RunHistory;
  faults: Faults;
  changes: AcceptedChange[];
  episodes: ReadEpisodes;
  /** Absent if the newest state has a result, or is not evaluated. */
  unfinished?: UnfinishedEvaluation | null;
  /** Models on a Tinker server; absent for a run on an engine of its nodes. */
  instances?: readonly InstanceRecord[];
  /** Absent if every tracker and channel has received everything. */
  undelivered?: readonly LackingSink[];
}

export function renderReport(input: ReportInput): string {
  const { history, faults, changes, episodes } = input;
  const { record } = history;
  const budget = budgetTable(history);
  const { analysis, points, shown } = episodes;
  const alerts = alertTable(alertsOfRun(record, history.updates));
  const unfinished = input.unfinished ?? null;
  const servedModels = servedModelsTable(input.instances ?? []);
  const breaks = stepsOfChanges(history.updates);
  const undelivered = missingDeliveriesTable(input.undelivered ?? []);
  const script = shown.index.rows.length === 0 ? null : viewerScript;
  const body = [
    header(history, faults),
    ...(unfinished === null ? [] : [section('Without a result', unfinishedNote(record.run, unfinished))]),
    section('Learning curve', learningCurve(history)),
    ...(alerts === null ? [] : [section('Alerts', alerts)]),
    section('Environments', environments(history)),
    section('Trajectories', trajectoryTables(analysis) + trajectoryTrends(points, breaks)),
    section('Transcripts', transcriptViewer(record.run, shown)),
    section('Training', trends(history.updates) + stepTable(history)),
    section('Faults it survived', faultTable(faults)),
    ...(servedModels === null ? [] : [section('Models on the Tinker server', servedModels)]),
    section('Changes during the run', changeTable(changes)),
    ...(budget === null ? [] : [section('Budget', budget)]),
    ...(undelivered === null ? [] : [section('Not delivered to trackers and channels', undelivered)]),
    section('Run', runFacts(history)),
  ];
  const policy = contentPolicy({ style: styleSheet, script });
  return page({ title: `${record.run} · Longhaul report`, policy, style: styleSheet, body, script });
}

function unfinishedNote(run: string, unfinished: UnfinishedEvaluation): string {
  const command = `<code>longhaul transcripts ${escapeHtml(run)}</code>`;
  return `<p>${escapeHtml(unfinishedText(unfinished))}. ${command} shows them.</p>`;
}

function header(history: RunHistory, { figures }: Faults): string {
  const { record, updates } = history;
  const position = positionOf(history);
  const faults = Object.entries(figures).filter(([name]) => name.startsWith('ft/restarts/'));
  const tiles = [
    passRateTile(history),
    tile('steps committed', whole(updates.at(-1)?.identity.step ?? 0)),
    tile(
      'training episodes',
      whole(updates.reduce((sum, { identity }) => sum + identity.outcomes.flat().length, 0)),
    ),
    tile('wall time', timeSpan(secondsOf(history))),
    tile('faults on record', whole(faults.reduce((sum, [, count]) => sum + count, 0))),
    ...regimeTile(history),
  ];
  const newest = updates.at(-1)?.observed.committed_at;
  const { lineage } = record;
  const lora = loraInWords(record);
  const origin = [
    ...(lineage ? [`continues from ${lineage.run} after step ${lineage.step}`] : []),
    ...(lineage?.rebase ? [rebaseInWords(lineage.rebase)] : []),
    record.spec.project,
    record.spec.model.name,
    ...(lora === null ? [] : [lora]),
    `seed ${record.seed}`,
    `started ${utc(record.observed.started_at)}`,
    ...(newest === undefined ? [] : [`newest step ${utc(newest)}`]),
  ];
  return (
    `<header><div class="title"><h1>${escapeHtml(record.run)}</h1>` +
    `<span class="position ${position.kind}">${escapeHtml(inWords(position))}</span></div>` +
    `<p class="quiet">${origin.map((part) => `<span class="whole">${escapeHtml(part)}</span>`).join(' · ')}</p>` +
    `<div class="tiles">${tiles.join('')}</div></header>`
  );
}

/** After the fork's step the states differ from the parent's, although the batches up to step `to` are the same (R18). */
function rebaseInWords({ to, numerics }: RebaseSpec): string {
  return `rebased to numerics ${nameOfNumerics(numerics)}: its parent's batches up to step ${to} were applied again`;
}

function passRateTile(history: RunHistory): string {
  const passed = ({ result }: EvaluationFigure): string =>
    `<span class="big">${passRateText(result.pass_at_1)}</span>`;
  const change = beforeAndAfter(history);
  if (change) {
    const name = hasEnded(positionOf(history)) ? 'before → after GRPO' : 'before GRPO → so far';
    const why = ungradedNote([change.before, change.after]);
    return tile(
      `held-out pass@1, ${name}${why}`,
      `${passed(change.before)} → ${passed(change.after)}`,
      'wide',
    );
  }
  const baseline = baselineOf(history);
  return baseline
    ? tile(
        `held-out pass@1 before GRPO; none after GRPO so far${ungradedNote([baseline])}`,
        passed(baseline),
        'wide',
      )
    : tile('held-out pass@1 before GRPO', 'none yet', 'wide');
}

/** No tile for a single environment, because the tile of the pass rate shows its change. */
function regimeTile(history: RunHistory): string[] {
  const change = beforeAndAfter(history);
  const environments = Object.entries(change?.after.result.environments ?? {});
  if (!change || environments.length < 2) return [];
  const before = change.before.result.environments;
  const counted = countedRegimes(environments.map(([env_key, after]) => regimeOf(before[env_key], after)));
  const pills = counted.map(({ regime, count }) => regimePill(regime, `${whole(count)} ${regime}`));
  return [tile('environments by regime', `<span class="pills">${pills.join(' ')}</span>`, 'whole-row')];
}

function regimePill(regime: Regime, text: string = regime): string {
  return `<span class="status ${regime.replaceAll(' ', '-')}">${text}</span>`;
}

function ungradedNote(figures: readonly EvaluationFigure[]): string {
  const steps = figures.flatMap(({ step, result }) => (result.pass_at_1 === null ? step : []));
  return steps.length === 0 ? '' : `; after step ${steps.join(' and ')} ${nothingGraded}`;
}

const utc = (iso: string): string => `${iso.replace('T', ' ').slice(0, 19)} UTC`;

function secondsOf({ updates, record }: RunHistory): number {
  const last = updates.at(-1)?.observed.committed_at;
  if (last === undefined) return 0;
  // Not negative: the newest step of a fork may be its parent's, which is older than the fork.
  return Math.max(0, (Date.parse(last) - Date.parse(record.observed.started_at)) / 1000);
}

function rewardPoint(update: UpdateRecord): ChartSeries['points'] {
  const reward = update.observed.metrics['reward/avg_raw_reward'];
  return reward === undefined ? [] : [{ x: update.identity.step, y: reward }];
}

function learningCurve(history: RunHistory): string {
  const grpo = history.updates.filter((update) => update.identity.kind === 'grpo');
  const rewards = grpo.flatMap(rewardPoint);
  const compared = comparedPoints(history);
  const others = history.evaluations.filter(({ result }) => result.suite_name === 'interval');
  const breaks = stepsOfChanges(history.updates);
  const smooth = smoothedParts(rewards, smoothingWidth(rewards.length), breaks);
  const series: ChartSeries[] = [
    { name: 'reward of a step', style: 'raw', draw: 'line', points: rewards },
    { name: 'smoothed', style: 'smooth', draw: 'line', points: smooth },
    {
      name: `held out, at intervals (${tasksInWords(others)})`,
      style: 'interval',
      draw: 'dots',
      points: others.flatMap(pointsOf),
      // No line crosses the warm start: between the untrained policy's evaluation and the baseline nothing was measured.
      joinedFrom: baselineOf(history)?.step ?? 0,
    },
    {
      name: `held out, ${compared.name}`,
      style: 'final',
      draw: 'labels',
      points: compared.figures.flatMap(pointsOf),
    },
  ];
  const shown = series.filter((one) => one.points.length > 0);
  const chart: UnsizedChart = {
    description: 'Mean reward of each GRPO step and pass@1 on held-out tasks, by step',
    yRange: [0, 1],
    yFormat: (value) => `${Math.round(value * 100)} %`,
    series: shown,
    bands: phaseBands(history),
    breaks,
  };
  const notes = [bandsInWords(history), breaksInWords(breaks), curriculumInWords(history.record)];
  return atBothWidths(chart, { wide: 320, narrow: 280 }) + quietNotes(notes);
}

const pointsOf = ({ step, result }: EvaluationFigure): ChartSeries['points'] =>
  result.pass_at_1 === null ? [] : [{ x: step, y: result.pass_at_1 }];

/** The two evaluations that the headline compares. Only these are marked in the chart. */
function comparedPoints(history: RunHistory): { name: string; figures: EvaluationFigure[] } {
  const change = beforeAndAfter(history);
  if (!change) {
    const baseline = baselineOf(history);
    const figures = baseline ? [baseline] : [];
    return { name: `before GRPO (${tasksInWords(figures)})`, figures };
  }
  const { before, after } = change;
  const later = hasEnded(positionOf(history)) ? 'after' : 'so far';
  const name = change.sameTasks
    ? `before GRPO and ${later} (${tasksInWords([before, after])})`
    : `before GRPO (${tasksInWords([before])}) and ${later} (${tasksInWords([after])})`;
  return { name, figures: [before, after] };
}

function tasksInWords(figures: readonly EvaluationFigure[]): string {
  const counts = [...new Set(figures.map(tasksOf))].sort((a, b) => a - b);
  return `${counts.map(whole).join(' or ')} ${counts.length === 1 && counts[0] === 1 ? 'task' : 'tasks'}`;
}

function breaksInWords(breaks: readonly number[]): string {
  if (breaks.length === 0) return '';
  return `The lines are parted where an environment changed: at ${breaks.length === 1 ? 'step' : 'steps'} ${breaks.map(whole).join(', ')}.`;
}

/** Spans of steps of one kind. Records do not name supervised phases, so all of them count as warm start. Empty if all steps are GRPO. */
function phaseBands({ record, updates }: RunHistory): ChartBand[] {
  const firstGrpo = updates.find((update) => update.identity.kind === 'grpo')?.identity.step;
  const last = updates.at(-1)?.identity.step ?? 0;
  const own = record.lineage?.step ?? 0;
  const phases =
    firstGrpo === undefined
      ? [{ from: 0, to: last, label: 'warm start' }]
      : [
          { from: 0, to: firstGrpo - 1, label: 'warm start' },
          { from: firstGrpo - 1, to: last, label: 'GRPO' },
        ];
  const parent = record.lineage ? [{ from: 0, to: own, label: `steps of ${record.lineage.run}` }] : [];
  const bands = [...parent, ...phases.map((band) => ({ ...band, from: Math.max(band.from, own) }))].filter(
    (band) => band.to > band.from,
  );
  return bands.every(({ label }) => label === 'GRPO') ? [] : bands;
}

function bandsInWords(history: RunHistory): string {
  const { lineage } = history.record;
  if (!lineage) return phaseBands(history).length === 0 ? '' : 'Shaded: warm start.';
  return `Up to step ${lineage.step}: the steps of ${escapeHtml(lineage.run)}, which this run continues.`;
}

function environments(history: RunHistory): string {
  const change = beforeAndAfter(history);
  const after = hasEnded(positionOf(history)) ? 'final' : 'newest';
  if (!change) return '<p class="quiet">No evaluation before or after GRPO is finished yet.</p>';
  const share = (value: number | null): string => (value === null ? '–' : percent(value));
  const delta = (value: number | null): string => (value === null ? '–' : points(value));
  const rows = environmentRows(change.before, change.after);
  const largest = Math.max(0, ...rows.map((row) => row.largest?.k ?? 0));
  const passAtK: Column<EnvironmentRow> = [
    `pass@${largest}`,
    ({ largest: one }) => (one?.k === largest ? `${share(one.before)} → ${share(one.after)}` : '–'),
    'figure',
  ];
  const byEnvironment = table<EnvironmentRow>(rows, [
    ['environment', (row) => escapeHtml(row.env_key)],
    ['episodes', (row) => whole(row.graded), 'figure'],
    ['baseline', (row) => share(row.before), 'figure'],
    [
      after,
      (row) =>
        `${share(row.after)}${row.error === null ? '' : ` <span class="quiet">± ${(row.error * 100).toFixed(1)}</span>`}`,
      'figure',
    ],
    ['delta', (row) => delta(row.delta), 'figure'],
    largest > 0 ? passAtK : null,
    ['regime', (row) => regimePill(row.regime)],
    ['unknown', (row) => whole(row.unknown), 'figure'],
    ['turns', (row) => row.mean_turns.toFixed(1), 'figure'],
    ['tool errors', (row) => share(row.tool_error_rate), 'figure'],
  ]);
  const byTemplate = table(templateRows(change.before, change.after), [
    ['template', (row) => escapeHtml(row.template)],
    ['episodes', (row) => whole(row.graded), 'figure'],
    ['baseline', (row) => share(row.before), 'figure'],
    [after, (row) => share(row.after), 'figure'],
    ['delta', (row) => delta(row.delta), 'figure'],
  ]);
  const partial = change.sameTasks
    ? ''
    : `On the later state only the first ${whole(tasksOf(change.after))} of the baseline’s ` +
      `${whole(tasksOf(change.before))} tasks were played. `;
  return (
    `${byEnvironment}<p class="quiet">State after step ${change.before.step} → state after step ${change.after.step}. ${partial}` +
    `pass@1 on held-out tasks, ${sampledHow(history)}; ± one standard error. Unknown outcomes ` +
    `(broken environments) are counted separately and never scored as failures of the model.</p>` +
    `<p class="quiet">${regimeRule}.</p>` +
    `<details><summary>by task template, the weakest first</summary>${byTemplate}</details>`
  );
}

function sampledHow({ record }: RunHistory): string {
  const { samples, temperature } = evaluationPlay(record.spec.generator);
  return `${samples === 1 ? 'sampled' : `${whole(samples)} samples a task`} at temperature ${temperature}`;
}

function stepTable(history: RunHistory): string {
  const figure = (value: number | undefined, digits: number): string =>
    value === undefined ? '–' : value.toFixed(digits);
  const rows = table(history.updates, [
    ['step', ({ identity }) => String(identity.step), 'figure'],
    [
      'kind',
      ({ identity: { kind, run } }) =>
        run === history.record.run ? kind : `${kind} <span class="quiet">of ${escapeHtml(run)}</span>`,
    ],
    ['reward', (update) => figure(update.observed.metrics['reward/avg_raw_reward'], 3), 'figure'],
    ['signal', (update) => figure(update.observed.metrics['reward/signal_ratio'], 2), 'figure'],
    ['loss', ({ observed }) => figure(observed.metrics['policy/final_loss'], 4), 'figure'],
    ['grad norm', ({ observed }) => figure(observed.metrics['policy/grad_norm'], 3), 'figure'],
    ['applied', ({ identity }) => (identity.applied === true ? 'yes' : escapeHtml(identity.applied.reason))],
    ['state', ({ identity }) => `<code>${identity.state.slice(0, 12)}</code>`],
  ]);
  return `<details><summary>${history.updates.length} ${history.updates.length === 1 ? 'step' : 'steps'}</summary>${rows}</details>`;
}

function changeTable(changes: readonly AcceptedChange[]): string {
  if (changes.length === 0) return '<p class="quiet">Nothing.</p>';
  return table(changes, [
    ['change', (row) => escapeHtml(row.what)],
    ['accepted', (row) => escapeHtml(utc(row.at))],
    ['next step planned', (row) => (row.step === null ? 'no step yet' : String(row.step)), 'figure'],
  ]);
}
