// Reads the evaluations of a run. Results are stored by state, and records name those that the run uses, whichever run played them.
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import { inParallel } from '../../base/in-parallel.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import {
  readEvaluated,
  readRunEvaluations,
  type UnfinishedEvaluation,
} from '../../store/evaluations/run-evaluations.js';
import { timelinesOf } from '../../store/runs/run-records.js';
import { mostFrequentReason, reasonText } from '../../rl/grades.js';

export interface EvaluationFigure {
  step: number;
  result: EvaluationResult;
}

/**
 * Evaluations that the run and its ancestors name in their records, sorted by step, then by suite name. For each step, the record of the
 * timeline that took the step counts.
 */
export async function readEvaluations(store: ObjectStore, run: string): Promise<EvaluationFigure[]> {
  const figures = new Map<string, EvaluationFigure>();
  for await (const { run: timeline, upTo } of timelinesOf(store, run)) {
    const records = await readRunEvaluations(store, timeline, (step) => step <= upTo);
    const found = await inParallel(records, async (record) => {
      const result = await readEvaluated(store, record);
      return result && { step: record.step, result };
    });
    for (const figure of found) {
      if (figure === null) continue;
      const place = `${figure.step}.${figure.result.suite_name}`;
      if (!figures.has(place)) figures.set(place, figure);
    }
  }
  return [...figures.values()].sort(
    (a, b) => a.step - b.step || a.result.suite_name.localeCompare(b.result.suite_name),
  );
}

export function episodesOf({ result }: EvaluationFigure): number {
  return result.graded + result.unknown;
}

export function tasksOf(figure: EvaluationFigure): number {
  return episodesOf(figure) / (figure.result.samples_per_task ?? 1);
}

/** `evaluation final of step 0 has no result yet: of 3 episodes 3 have an unknown outcome, most often tracker: grade: …` */
export function unfinishedText({ step, suite_name, episodes }: UnfinishedEvaluation): string {
  const head = `evaluation ${suite_name} of step ${step} has no result yet: of ${episodes.length} episodes`;
  const unknown = episodes.filter(({ outcome }) => outcome.status === 'unknown').length;
  const most = mostFrequentReason(episodes);
  const why = most === null ? '' : `, most often ${reasonText(most)}`;
  return `${head} ${unknown} ${unknown === 1 ? 'has' : 'have'} an unknown outcome${why}`;
}
