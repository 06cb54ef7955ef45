// Finds the evaluations of a run: its own, or adopted from another run with the same state. Results are stored by state, and each
// run has records that name the evaluations it uses.
import type { EvaluatedRecord, EvaluationResult } from '../../spec/records/evaluation-records.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  attemptsFolder,
  evaluationResultKey,
  evaluationSuiteKey,
  parseEvaluationKey,
  runEvaluationsFolder,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord, requireRecord } from '../records/records.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { readEvaluationEpisodes } from '../runs/episodes.js';
import { lastCommittedStep } from '../runs/run-records.js';

/** Evaluations of the run's own steps, in the order of the steps. */
export async function readRunEvaluations(
  store: ObjectStore,
  run: string,
  wanted: (step: number) => boolean = () => true,
): Promise<EvaluatedRecord[]> {
  const folder = runEvaluationsFolder(run);
  const names = (await store.listFolder(folder)).filter((name) => {
    const step = /^([0-9]{6,})\.[^/]+\.json$/.exec(name)?.[1];
    return step !== undefined && wanted(Number(step));
  });
  return inParallel(names, (name) => requireRecord(store, `${folder}${name}`, 'evaluated'));
}

/** The result that an `EvaluatedRecord` names; null if it was set aside (R24) and is not played again yet. */
export function readEvaluated(
  store: ObjectStore,
  { state, suite }: EvaluatedRecord,
): Promise<EvaluationResult | null> {
  return readRecord(store, evaluationResultKey(state, suite), 'evaluation');
}

export interface UnfinishedEvaluation {
  step: number;
  suite_name: string;
  episodes: EpisodeRecord[];
}

/** The evaluation that the run's newest evaluation attempt started; null if it has a result. Throws `UnreadableRecord`. */
export async function readUnfinishedEvaluation(
  store: ObjectStore,
  run: string,
): Promise<UnfinishedEvaluation | null> {
  const step = await lastCommittedStep(store, run);
  if (step < 0) return null;
  const keys: string[] = [];
  for await (const { key } of store.list(attemptsFolder(run, step)))
    if (/\/attempts\/evaluate-(interval|final)\b/.test(key)) keys.push(key);
  const attempts = await inParallel(keys, (key) => requireRecord(store, key, 'attempt'));
  const [newest] = attempts
    .filter(({ starts }) => starts.length > 0)
    .sort((a, b) => (a.observed.at < b.observed.at ? 1 : -1));
  const begun = parseEvaluationKey(newest?.starts[0] ?? '');
  if (begun === null) return null;
  const { state, suite } = begun;
  const [record, result] = await Promise.all([
    readRecord(store, evaluationSuiteKey(state, suite), 'suite'),
    store.head(evaluationResultKey(state, suite)),
  ]);
  if (record === null || result !== null) return null;
  const episodes = await readEvaluationEpisodes(store, { result: { state, suite } });
  return { step, suite_name: record.name, episodes };
}
