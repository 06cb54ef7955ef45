// The part of the page where readers find and read transcripts. It is empty until the page's script fills it.
import { escapeHtml } from '../html.js';
import { whole } from '../format.js';
import type { EpisodeSelection } from '../history/episode-selection.js';
import { inMarkup, type FinishedChunk } from './transcript-chunks.js';
import type { TranscriptIndex } from './transcript-index.js';

export interface ShownTranscripts {
  index: TranscriptIndex;
  selection: EpisodeSelection;
  /** Chunks inside the page itself, so that a page without its folder still shows them. */
  embedded: FinishedChunk[];
  /** Sources that cannot be read, in words. */
  unreadable: string[];
}

export function transcriptViewer(run: string, shown: ShownTranscripts): string {
  const { index, embedded } = shown;
  if (index.rows.length === 0)
    return '<p class="quiet">No finished episodes yet.</p>' + unreadableText(shown);
  return [
    `<p class="quiet">${sourcesText(run, shown)}</p>`,
    unreadableText(shown),
    '<noscript><p>This page shows transcripts with a script, and your browser does not run scripts here.</p></noscript>',
    '<div id="transcript-browser" hidden><form class="filters">',
    select('in', 'from', [
      ['newest', 'the newest evaluation'],
      ['evaluations', 'all evaluations'],
      ['training', 'training'],
      ['', 'everywhere'],
    ]),
    '<label>step <input name="step" type="number" placeholder="any"></label>',
    select('env', 'environment', [['', 'all']]),
    select('outcome', 'outcome', [
      ['', 'any'],
      ['fail', 'fail'],
      ['unknown', 'unknown'],
      ['pass', 'pass'],
    ]),
    select('with', 'with', [
      ['', 'or without trouble'],
      ['toolError', 'a tool error'],
      ['repeated', 'a repeated call'],
      ['premature', 'a premature done'],
      ['cutOff', 'a limit reached'],
    ]),
    '<label class="wide">task <input name="task" type="search" placeholder="part of its key or text"></label>',
    '<button type="reset">reset</button></form>',
    '<p class="found quiet" role="status"></p><ol class="found-list"></ol>',
    '<button type="button" class="more" hidden></button>',
    '<article class="opened" hidden aria-live="polite"></article></div>',
    data('transcript-index', JSON.stringify(index)),
    ...embedded.map(({ name, content }) => data(`chunk-${name}`, content)),
  ].join('\n');
}

function select(name: string, label: string, options: [value: string, text: string][]): string {
  const listed = options.map(([value, text]) => `<option value="${value}">${text}</option>`);
  return `<label>${label} <select name="${name}">${listed.join('')}</select></label>`;
}

/** A script element of data, which no browser runs. */
function data(id: string, json: string): string {
  return `<script type="application/json" id="${id}">${inMarkup(json)}</script>`;
}

function sourcesText(run: string, { index, selection, embedded }: ShownTranscripts): string {
  const { sources, trainingSteps, trainingEpisodes, evaluations } = selection;
  const training = sources.filter(({ kind }) => kind === 'training');
  const shownEvaluations = sources.length - training.length;
  const parts = [
    `${whole(index.rows.length)} transcripts: of ` +
      (shownEvaluations === evaluations
        ? `${evaluations === 1 ? 'the one evaluation' : `all ${whole(evaluations)} evaluations`}`
        : `the newest ${whole(shownEvaluations)} of ${whole(evaluations)} evaluations`) +
      ` and ${training.length === trainingSteps ? `all ${whole(trainingSteps)}` : `${whole(training.length)} of ${whole(trainingSteps)}`} training steps.`,
    ...(training.length < trainingSteps
      ? [
          `The steps shown are spread evenly over the run’s ${whole(trainingEpisodes)} training episodes; to see others: ` +
            `<code>longhaul transcripts ${escapeHtml(run)} --step N</code>.`,
        ]
      : []),
    ...(embedded.length < index.chunks.length
      ? [
          `Most of them are in the folder <code>${escapeHtml(index.folder)}/</code> beside this page and load when you open them.`,
        ]
      : []),
  ];
  return parts.join(' ');
}

function unreadableText({ unreadable }: ShownTranscripts): string {
  if (unreadable.length === 0) return '';
  const items = unreadable.map((text) => `<li>${escapeHtml(text)}</li>`).join('');
  return `<p class="quiet">Not shown and not counted, because their records cannot be read:</p><ul class="quiet">${items}</ul>`;
}
