// The run's report: one self-contained HTML page.
import { escapeHtml, lineChart, type ChartSeries } from './chart.js';
import { environmentRows, type EnvironmentRow } from './environment-table.js';
import { styleSheet } from './report-style.js';
import { beforeAndAfter, engineRestarts, type RunHistory } from './run-history.js';
import type { Transcript } from './transcripts.js';

export interface ReportInput {
  history: RunHistory;
  /** Of the newest `final` evaluation, or of the newest at all. */
  transcripts: Transcript[];
}

export function renderReport({ history, transcripts }: ReportInput): string {
  const { record } = history;
  return [
    '<!doctype html>',
    '<html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<title>${escapeHtml(record.run)} · Longhaul report</title>`,
    `<style>${styleSheet}</style></head><body><main>`,
    header(history),
    section('Learning curve', learningCurve(history)),
    section('Environments', environments(history)),
    section('Transcripts', transcriptViewer(transcripts)),
    section('Steps', stepTable(history)),
    section('Run', facts(history)),
    '</main></body></html>',
  ].join('\n');
}

function section(title: string, body: string): string {
  return `<section><h2>${title}</h2>\n${body}\n</section>`;
}

const percent = (value: number): string => `${(value * 100).toFixed(1)} %`;

function header(history: RunHistory): string {
  const { record, updates } = history;
  const change = beforeAndAfter(history);
  const last = updates.at(-1);
  const tiles = [
    change
      ? tile(
          'held-out pass@1',
          `${percent(change.before.result.pass_at_1)} → ${percent(change.after.result.pass_at_1)}`,
        )
      : tile('held-out pass@1', 'not evaluated yet'),
    tile('steps committed', String(last?.identity.step ?? 0)),
    tile(
      'episodes',
      String(updates.reduce((sum, update) => sum + update.identity.outcomes.flat().length, 0)),
    ),
    tile('wall time', duration(history)),
    tile('engine restarts survived', String(engineRestarts(history))),
  ];
  return (
    `<header><h1>${escapeHtml(record.run)}</h1>` +
    `<p class="quiet">${escapeHtml(record.spec.project)} · ${escapeHtml(record.spec.model.name)} · seed ${record.seed} · ` +
    `started ${escapeHtml(record.observed.started_at.replace('T', ' ').slice(0, 19))} UTC</p>` +
    `<div class="tiles">${tiles.join('')}</div></header>`
  );
}

function tile(name: string, value: string): string {
  return `<div class="tile"><div class="value">${value}</div><div class="quiet">${name}</div></div>`;
}

function duration(history: RunHistory): string {
  const last = history.updates.at(-1)?.observed.committed_at;
  if (last === undefined) return '–';
  const seconds = Math.max(0, (Date.parse(last) - Date.parse(history.record.observed.started_at)) / 1000);
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  return seconds < 7200
    ? `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`
    : `${(seconds / 3600).toFixed(1)} h`;
}

function learningCurve(history: RunHistory): string {
  const grpo = history.updates.filter((update) => update.identity.kind === 'grpo');
  const first = grpo[0]?.identity.step;
  const reward: ChartSeries = {
    name: 'mean reward of the step',
    style: 'reward',
    marked: false,
    points: grpo.map((update) => ({
      x: update.identity.step,
      y: update.observed.metrics['reward/avg_raw_reward'] ?? 0,
    })),
  };
  const held = (suite: string, style: string): ChartSeries => ({
    name: `held-out pass@1 (${suite})`,
    style,
    marked: true,
    points: history.evaluations
      .filter((figure) => figure.result.suite_name === suite)
      .map((figure) => ({ x: figure.step, y: figure.result.pass_at_1 })),
  });
  return lineChart({
    title: 'Learning curve',
    xLabel: 'step',
    yRange: [0, 1],
    yFormat: (value) => `${Math.round(value * 100)} %`,
    series: [reward, held('interval', 'interval'), held('final', 'final')],
    marks: first === undefined ? [] : [{ x: first, label: 'GRPO begins' }],
  });
}

function environments(history: RunHistory): string {
  const change = beforeAndAfter(history);
  if (!change) return '<p class="quiet">There is no evaluation before and after GRPO yet.</p>';
  const rows = environmentRows(change.before, change.after).map(environmentRow).join('');
  return (
    '<table><thead><tr><th>environment</th><th>tasks</th><th>baseline</th><th>final</th><th>delta</th><th>status</th>' +
    '<th>unknown</th><th>turns</th><th>tool errors</th></tr></thead>' +
    `<tbody>${rows}</tbody></table>` +
    '<p class="quiet">pass@1 on held-out tasks, sampled at temperature 1. Unknown outcomes (broken environments) are counted ' +
    'apart and never scored as failures of the model.</p>'
  );
}

function environmentRow(row: EnvironmentRow): string {
  const sign = row.delta >= 0 ? '+' : '−';
  return (
    `<tr><td>${escapeHtml(row.env_key)}</td><td>${row.tasks}</td><td>${percent(row.before)}</td><td>${percent(row.after)}</td>` +
    `<td>${sign}${(Math.abs(row.delta) * 100).toFixed(1)}</td><td><span class="status ${row.status}">${row.status}</span></td>` +
    `<td>${row.unknown}</td><td>${row.mean_turns.toFixed(1)}</td><td>${row.tool_errors}</td></tr>`
  );
}

function transcriptViewer(transcripts: Transcript[]): string {
  if (transcripts.length === 0) return '<p class="quiet">No episodes yet.</p>';
  return transcripts
    .map((transcript) => {
      const parts = transcript.parts
        .map(
          (part) =>
            `<div class="part ${part.who}"><span class="who">${part.who}</span><pre>${escapeHtml(part.text)}</pre></div>`,
        )
        .join('');
      return (
        `<details class="transcript"><summary><span class="status ${transcript.verdict}">${transcript.verdict}</span> ` +
        `${escapeHtml(transcript.task_key)} <span class="quiet">${escapeHtml(transcript.reason)} · ended by ${transcript.stop_reason} · ` +
        `${transcript.parts.filter((part) => part.who === 'model').length} turns</span></summary>${parts}</details>`
      );
    })
    .join('\n');
}

function stepTable(history: RunHistory): string {
  const figure = (value: number | undefined, digits: number): string =>
    value === undefined ? '–' : value.toFixed(digits);
  const rows = history.updates.map(({ identity, observed }) => {
    const { metrics } = observed;
    return (
      `<tr><td>${identity.step}</td><td>${identity.kind}</td><td>${figure(metrics['reward/avg_raw_reward'], 3)}</td>` +
      `<td>${figure(metrics['policy/final_loss'], 4)}</td><td>${figure(metrics['policy/grad_norm'], 3)}</td>` +
      `<td>${identity.applied === true ? 'yes' : escapeHtml(identity.applied.reason)}</td>` +
      `<td><code>${identity.state.slice(0, 12)}</code></td></tr>`
    );
  });
  return (
    `<details><summary>${rows.length} steps</summary><table><thead><tr><th>step</th><th>kind</th><th>reward</th><th>loss</th>` +
    `<th>grad norm</th><th>applied</th><th>state</th></tr></thead><tbody>${rows.join('')}</tbody></table></details>`
  );
}

function facts(history: RunHistory): string {
  const { record, owners, control } = history;
  const last = history.updates.at(-1);
  const rows: [string, string][] = [
    ['run', record.run],
    ['final state', last?.identity.state ?? '–'],
    ['base model', record.base_model],
    ['dataset', `${record.dataset.name} ${record.dataset.version}`],
    ['tokenizer', record.tokenizer],
    ['numerics', last ? `${last.identity.numerics.backend} ${last.identity.numerics.version}` : '–'],
    [
      'engine builds',
      [...new Set(history.updates.map((update) => update.observed.engine.build))].join(', ') || '–',
    ],
    [
      'owners',
      owners.map((owner) => `${owner.n}: ${owner.workflowId} at ${owner.address}`).join('; ') || '–',
    ],
    [
      'changes while running',
      control.map((one) => `${one.n}: ${JSON.stringify(one.change)}`).join('; ') || 'none',
    ],
  ];
  const table = rows
    .map(([name, value]) => `<tr><th>${name}</th><td><code>${escapeHtml(value)}</code></td></tr>`)
    .join('');
  const spec = escapeHtml(JSON.stringify(record.spec, null, 2));
  return `<table class="facts">${table}</table><details><summary>spec</summary><pre>${spec}</pre></details>`;
}
