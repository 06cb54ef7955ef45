// writeReport: the run's report as of its last committed step, stored beside its records.
import type { OrchestratorDeps } from './orchestrator-deps.js';
import { readEvaluationEpisodes, readHistory } from '../report/run-history.js';
import { renderReport } from '../report/html-report.js';
import { pickTranscripts, toTranscript } from '../report/transcripts.js';
import { reportKey } from '../store/layout.js';

/** Transcripts of each verdict in the report. */
const transcriptsShown = 8;

export async function renderRunReport(
  deps: Pick<OrchestratorDeps, 'store' | 'runs'>,
  run: string,
): Promise<{ html: string; step: number }> {
  const history = await readHistory(deps.store, run);
  const { tokenizer } = await deps.runs.get(run);
  const newest =
    history.evaluations.findLast((figure) => figure.result.suite_name === 'final') ??
    history.evaluations.at(-1);
  const episodes = newest ? await readEvaluationEpisodes(deps.store, newest) : [];
  const transcripts = pickTranscripts(episodes, transcriptsShown).map((episode) =>
    toTranscript(episode, (tokens) => tokenizer.decode(tokens)),
  );
  return { html: renderReport({ history, transcripts }), step: history.updates.at(-1)?.identity.step ?? 0 };
}

export async function publishReport(
  deps: OrchestratorDeps,
  input: { run: string },
): Promise<{ key: string }> {
  const { html, step } = await renderRunReport(deps, input.run);
  const key = reportKey(input.run, step);
  await deps.store.create(key, Buffer.from(html));
  return { key };
}
