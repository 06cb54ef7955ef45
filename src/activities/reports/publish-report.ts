// writeReport: stores the run's report as of its last committed step, and its transcripts, beside the run's records.
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { readChanges } from '../../report/history/changes.js';
import { faultsOf, readAttempts } from '../../report/history/faults.js';
import { renderReport } from '../../report/html-report.js';
import { readReportEpisodes, type EpisodeReading } from '../../report/report-episodes.js';
import { readHistory } from '../../report/history/run-history.js';
import { sha256Hex } from '../../base/sha256.js';
import type { FaultFigures } from '../../store/runs/fault-figures.js';
import { readInstances } from '../../store/runs/served-models.js';
import { readTroubles } from '../../store/runs/notices.js';
import { reportKey, reportTranscriptsKey } from '../../store/record-keys.js';
import { readUnfinishedEvaluation } from '../../store/evaluations/run-evaluations.js';

/** A report reads at most this many episodes. Reading them takes about ten seconds and adds half a megabyte to the page. */
const limit = 10_000;

export async function renderRunReport(
  deps: Pick<OrchestratorDeps, 'store' | 'runs'>,
  run: string,
  place: Pick<EpisodeReading, 'folder' | 'keep'>,
): Promise<{ html: string; step: number; faults: FaultFigures }> {
  const history = await readHistory(deps.store, run);
  const episodes = await readReportEpisodes(deps.store, history, {
    ...{ ...place, limit },
    coder: await deps.runs.get(run),
  });
  const attempts = await readAttempts(deps.store, history);
  const faults = faultsOf(history, attempts);
  const html = renderReport({
    history: { ...history, updates: faults.updates },
    faults,
    changes: await readChanges(deps.store, history),
    episodes,
    unfinished: await readUnfinishedEvaluation(deps.store, run),
    ...(history.record.spec.model.served ? { instances: await readInstances(deps.store, run) } : {}),
    // The report is made even if these records cannot be read.
    undelivered: await readTroubles(deps.store, run).catch(() => []),
  });
  return { html, faults: faults.figures, step: history.updates.at(-1)?.identity.step ?? 0 };
}

export async function publishReport(
  deps: OrchestratorDeps,
  input: { run: string },
): Promise<{ key: string; faults: FaultFigures }> {
  const { store } = deps;
  const { html, step, faults } = await renderRunReport(deps, input.run, {
    folder: 'transcripts',
    keep: async (name, text) => {
      await store.create(reportTranscriptsKey(input.run, name), Buffer.from(text));
    },
  });
  const bytes = Buffer.from(html);
  // The page is stored last, so a stored page always has its transcripts.
  const key = reportKey(input.run, step, sha256Hex(bytes));
  await store.create(key, bytes);
  return { key, faults };
}
