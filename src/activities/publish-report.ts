// writeReport: the run's report as of its last committed step, stored beside its records.
import type { OrchestratorDeps } from './orchestrator-deps.js';
import { readChanges } from '../report/changes.js';
import { faultsOf } from '../report/faults.js';
import { renderReport } from '../report/html-report.js';
import { readAttempts, restartsOf } from '../report/restarts.js';
import { newestEvaluation, readEvaluationEpisodes, readHistory } from '../report/run-history.js';
import { pickTranscripts, toTranscript } from '../report/transcripts.js';
import { sha256Hex } from '../store/canonical.js';
import type { FaultFigures } from '../store/fault-figures.js';
import { reportKey } from '../store/layout.js';

/** Transcripts of each verdict in the report. */
const transcriptsShown = 8;

export async function renderRunReport(
  deps: Pick<OrchestratorDeps, 'store' | 'runs'>,
  run: string,
): Promise<{ html: string; step: number; faults: FaultFigures }> {
  const history = await readHistory(deps.store, run);
  const { tokenizer } = await deps.runs.get(run);
  const newest = newestEvaluation(history.evaluations);
  const episodes = newest ? await readEvaluationEpisodes(deps.store, newest) : [];
  const transcripts = pickTranscripts(episodes, transcriptsShown).map((episode) =>
    toTranscript(episode, (tokens) => tokenizer.decode(tokens)),
  );
  const attempts = await readAttempts(deps.store, history);
  const faults = faultsOf(history, attempts);
  const html = renderReport({
    history,
    faults,
    restarts: restartsOf(history, attempts),
    changes: await readChanges(deps.store, history),
    transcripts,
    transcriptsOf: newest,
  });
  return { html, faults: faults.figures, step: history.updates.at(-1)?.identity.step ?? 0 };
}

export async function publishReport(
  deps: OrchestratorDeps,
  input: { run: string },
): Promise<{ key: string; faults: FaultFigures }> {
  const { html, step, faults } = await renderRunReport(deps, input.run);
  const bytes = Buffer.from(html);
  const key = reportKey(input.run, step, sha256Hex(bytes));
  await deps.store.create(key, bytes);
  return { key, faults };
}
