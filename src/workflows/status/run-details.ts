// The live text of a run in the Temporal UI (`setCurrentDetails`). The UI asks for it like a query, so it adds nothing to the history.
import type { RunOutline, RunStatus } from '../../activities/contracts.js';
import { countedPassRate, passRateChange, passRateText } from '../../spec/pass-rate.js';
import { servedNote, usedShare } from './budget.js';
import { faultNote } from './fault-note.js';
import { settingNotes } from '../hyperparameters.js';
import { type Fact, factTable, minuteText, plain } from './markdown.js';
import {
  collectionNote,
  headline,
  remainingSeconds,
  signalNotes,
  stopNote,
  suiteText,
  targetNote,
} from './run-text.js';

const shownEvaluations = 5;
const shownSteps = 3;

/** Facts that only this text shows; no record holds them. */
interface RunNews {
  /** Null until the run is opened. */
  outline: RunOutline | null;
  /** Why the last checkpoint failed; null if it did not. */
  checkpointTrouble: string | null;
  /** Milliseconds since the epoch. */
  now: number;
}

/** Markdown of about 3 kB. The UI puts it into a URL, so it must not grow with the run. */
export function detailsOf(status: RunStatus, news: RunNews): string {
  const { outline } = news;
  return [
    holdUps(status),
    figures(status, news),
    notes(status, outline?.followed_in ?? []),
    evaluations(status),
    lastSteps(status),
    ways(status),
  ]
    .filter((part) => part !== '')
    .join('\n\n');
}

/** What waits for a person; it comes first in the text. */
function holdUps({ blocked, failing, phase, waitsFor, run }: RunStatus): string {
  const lines: string[] = [];
  if (blocked) lines.push(`**Blocked**: ${plain(blocked.reason)}`, `**To fix it**: ${plain(blocked.remedy)}`);
  else if (phase === 'paused') lines.push(`**Paused.** Continue with \`longhaul resume ${run}\``);
  if (failing) lines.push(`**Keeps failing**: ${plain(failing.reason)}`, plain(failing.remedy));
  if (waitsFor !== null) lines.push(`**Waits for a node**: ${plain(waitsFor)}`);
  return lines.join('\n\n');
}

function figures(status: RunStatus, { outline, checkpointTrouble, now }: RunNews): string {
  const rows: Fact[] = [
    ['run', `**${status.run}**`, ...(outline ? [plain(outline.model), plain(outline.project)] : [])],
    ['phase', `**${status.phase}**`, plain(status.trainingPhase)],
    ['step', `**${Math.max(status.step, 0)}** of ${status.totalSteps}`, end(status, now)],
    ...passAt1(status),
    ...reward(status),
    ...pace(status),
    ...unknown(status),
    ['node', [status.node ?? 'none', ...status.sharingNodes].map(plain).join(', '), `owner ${status.owner}`],
    [
      'last checkpoint',
      status.lastCheckpoint === null ? 'none yet' : `step ${status.lastCheckpoint}`,
      plain(checkpointTrouble ?? ''),
    ],
  ];
  if (status.served) rows.push(['sent to the server', servedNote(status.served)]);
  for (const line of status.budget ?? [])
    rows.push([
      `budget.${line.name}`,
      `${count(line.spent)} of ${count(line.limit)}`,
      `${Math.floor(100 * usedShare(line))} %${usedShare(line) >= 1 ? ': spent' : ''}`,
    ]);
  return factTable(rows);
}

function end(status: RunStatus, now: number): string {
  const last = status.recent.at(-1);
  if (last?.kind !== 'grpo' || ['completed', 'stopped', 'paused', 'blocked'].includes(status.phase))
    return '';
  const at = new Date(now + 1000 * remainingSeconds(status));
  return `ends about ${minuteText(at)}`;
}

function passAt1({ evaluations }: RunStatus): Fact[] {
  const [first, last] = [evaluations[0], evaluations.at(-1)];
  if (!first || !last) return [];
  const change = passRateChange(first.pass_at_1, last.pass_at_1);
  const curve = sparkline(evaluations.flatMap(({ pass_at_1 }) => pass_at_1 ?? []));
  const since =
    change === null
      ? ''
      : `${change < 0 ? '−' : '+'}${Math.abs(100 * change).toFixed(1)} points since step ${first.step}`;
  return [
    [
      'pass@1',
      `**${passRateText(last.pass_at_1)}** at step ${last.step}`,
      ...(evaluations.length > 1 ? [curve, since] : []),
    ],
  ];
}

function reward({ recent, rewards }: RunStatus): Fact[] {
  const last = recent.findLast(({ kind }) => kind === 'grpo');
  const figure = last?.metrics['reward/avg_raw_reward'];
  if (!last || figure === undefined) return [];
  return [['reward', `**${figure.toFixed(2)}** at step ${last.step}`, sparkline(rewards)]];
}

function pace({ recent, tokens, sampleSeconds }: RunStatus): Fact[] {
  const last = recent.at(-1);
  if (!last) return [];
  const perSecond =
    sampleSeconds > 0 ? `${Math.round(tokens / sampleSeconds).toLocaleString('en')} tokens/s` : '';
  return [['last step', `${last.seconds.toFixed(1)} s`, perSecond]];
}

function unknown({ outcomes }: RunStatus): Fact[] {
  if (!outcomes?.last) return [];
  const { last } = outcomes;
  const share = (of: { graded: number; unknown: number }): string =>
    `${count(of.unknown)} of ${count(of.graded + of.unknown)}`;
  return [
    ['unknown outcomes', `${share(last)} at step ${last.step}`, `${share(outcomes)} in all`],
    ...(last.unknown_reason === undefined
      ? []
      : [['most of them', plain(last.unknown_reason)] satisfies Fact]),
  ];
}

function notes(status: RunStatus, followedIn: readonly string[]): string {
  const stop = stopNote(status);
  const faults = faultNote(status.faults ?? {});
  const target = targetNote(status);
  const collection = collectionNote(status);
  const lines = [
    ...signalNotes(status).map(plain),
    ...(collection ? [plain(collection)] : []),
    ...(target ? [target] : []),
    ...(stop ? [stop] : []),
    ...settingNotes(status.control),
    ...(status.lineage ? [`continues from ${status.lineage.run} after step ${status.lineage.step}`] : []),
    ...(faults ? [faults] : []),
    ...(followedIn.length > 0 ? [`followed in ${followedIn.map(plain).join(', ')}`] : []),
    ...(status.report
      ? [
          `report in the store: \`${status.report}\` · to write it to a file: \`longhaul report ${status.run}\``,
        ]
      : []),
  ];
  return lines.map((line) => `- ${line}`).join('\n');
}

function evaluations(status: RunStatus): string {
  const lines = status.evaluations
    .slice(-shownEvaluations)
    .reverse()
    .map(
      ({ step, suite, ...evaluation }) =>
        `- step ${step} · ${plain(suiteText({ suite, ...evaluation }))} · pass@1 ${boldFigures(countedPassRate(evaluation))}`,
    );
  return lines.length === 0 ? '' : ['**Evaluations on held-out tasks**', '', ...lines].join('\n');
}

/** The rates in bold, without the counts beside them. */
function boldFigures(text: string): string {
  return text.replace(/\d+\.\d %|^–/g, '**$&**');
}

function lastSteps({ recent }: RunStatus): string {
  const lines = recent
    .slice(-shownSteps)
    .reverse()
    .map(
      (one) =>
        `- step ${one.step} · ${one.kind} · ${one.seconds.toFixed(1)} s · ${headline(one) ?? 'no figures'}`,
    );
  return lines.length === 0 ? '' : ['**Last steps**', '', ...lines].join('\n');
}

/** Exact commands, including those of the standard `temporal` CLI: the reader may not have this project's code. */
function ways({ run, phase, step, control }: RunStatus): string {
  const workflow = `train/${nameOf(run)}`;
  const update = (name: string, input = ''): string =>
    `\`temporal workflow update execute -w ${workflow} --name ${name}${input}\``;
  const pause = `- pause: \`longhaul pause ${run}\` or ${update('pause')}`;
  const resume = `- resume: \`longhaul resume ${run}\` or ${update('resume')}`;
  const held = phase === 'blocked' || phase === 'paused' || control.paused;
  const steering = [
    '**Commands for this run**',
    '',
    held ? resume : pause,
    `- set: \`longhaul set ${run} lr=1e-4\` or ${update('setHyperparameters', ` --input '{"lr": 1e-4}'`)}`,
    `- end after the next step: \`longhaul stop ${run}\` or ${update('stopAfter', ` --input '{"step": ${step + 1}}'`)}`,
    '',
  ];
  const start =
    `temporal workflow start --type trainingRun --task-queue longhaul -w ${workflow} ` +
    '--task-timeout 5s --input-file run.json';
  const again = [
    '**To continue the run after it has ended, for whatever reason**',
    '',
    `- \`longhaul train --run ${run}\``,
    `- or \`longhaul spec --run ${run} > run.json\` and then \`${start}\``,
  ];
  const further = [
    '**To train it further**',
    '',
    `- \`longhaul fork ${run}@${step} --name NEW --set max_training_steps=N\``,
  ];
  if (phase === 'completed') return further.join('\n');
  return [...(phase === 'stopped' ? [] : steering), ...again].join('\n');
}

/** The name without the timeline: `demo` for `demo~2`. */
function nameOf(run: string): string {
  return run.replace(/~\d+$/, '');
}

function count(value: number): string {
  return value.toLocaleString('en', { maximumFractionDigits: 4 });
}

const bars = '▁▂▃▄▅▆▇█';
/** So many fit beside a figure in the Temporal UI, in a window that is 1,280 pixels wide. */
const longest = 12;

/** `▁▃▅█`, oldest value first, scaled from the least to the greatest; long series are averaged. Empty below two values. */
export function sparkline(values: readonly number[]): string {
  if (values.length < 2) return '';
  const points = averaged(values, longest);
  const least = Math.min(...points);
  const range = Math.max(...points) - least;
  const heightOf = (value: number): number =>
    range === 0 ? 3 : Math.round(((value - least) / range) * (bars.length - 1));
  return points.map((value) => bars[heightOf(value)] ?? '').join('');
}

/** At most `most` values. Each is the mean of neighbouring values; the groups' sizes differ by at most one. */
function averaged(values: readonly number[], most: number): number[] {
  const count = Math.min(values.length, most);
  return Array.from({ length: count }, (_, index) => {
    const start = Math.floor((index * values.length) / count);
    const part = values.slice(start, Math.floor(((index + 1) * values.length) / count));
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}
