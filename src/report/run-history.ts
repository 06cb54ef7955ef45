// What a run did, gathered from its records alone.
import type {
  ControlRecord,
  Digest,
  EpisodeRecord,
  EvaluationResult,
  OwnerRecord,
  RunRecord,
  UpdateRecord,
} from '../spec/records.js';
import { inParallel } from '../store/in-parallel.js';
import {
  controlFolder,
  evaluationEpisodesFolder,
  evaluationResultKey,
  evaluationsOfState,
  ownersFolder,
} from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { readRecord, readSequence } from '../store/records.js';
import { lastCommittedStep, readRun, readState, readUpdate } from '../store/run-records.js';

export interface EvaluationFigure {
  step: number;
  result: EvaluationResult;
}

export interface RunHistory {
  record: RunRecord;
  /** Steps 1…n in order. */
  updates: UpdateRecord[];
  /** By step, then by suite name. */
  evaluations: EvaluationFigure[];
  owners: OwnerRecord[];
  control: ControlRecord[];
}

export async function readHistory(store: ObjectStore, run: string): Promise<RunHistory> {
  const record = await readRun(store, run);
  const last = await lastCommittedStep(store, run);
  const steps = Array.from({ length: Math.max(last, 0) }, (_, index) => index + 1);
  const updates = await inParallel(steps, (step) => readUpdate(store, run, step));
  const states = last < 0 ? [] : [{ step: 0, state: await readState(store, run, 0) }];
  for (const { identity } of updates)
    if (identity.applied === true) states.push({ step: identity.step, state: identity.state });
  const evaluations = await readEvaluations(store, states);
  const [owners, control] = await Promise.all([
    readSequence(store, ownersFolder(run), 'owner'),
    readSequence(store, controlFolder(run), 'control'),
  ]);
  return { record, updates, evaluations, owners, control };
}

async function readEvaluations(
  store: ObjectStore,
  states: readonly { step: number; state: Digest }[],
): Promise<EvaluationFigure[]> {
  const listed = await inParallel(states, async ({ step, state }) => {
    const suites = await store.listFolder(evaluationsOfState(state));
    return suites.map((name) => ({ step, key: evaluationResultKey(state, name.replace(/\/$/, '')) }));
  });
  const found = await inParallel(listed.flat(), async ({ step, key }) => {
    const result = await readRecord(store, key, 'evaluation');
    return result && { step, result };
  });
  return found
    .filter((figure) => figure !== null)
    .sort((a, b) => a.step - b.step || a.result.suite_name.localeCompare(b.result.suite_name));
}

/** Episodes of one evaluation, in slot order. */
export async function readEvaluationEpisodes(
  store: ObjectStore,
  { result }: EvaluationFigure,
): Promise<EpisodeRecord[]> {
  const folder = evaluationEpisodesFolder(result.state, result.suite);
  const names = await store.listFolder(folder);
  const records = await inParallel(names, (name) => readRecord(store, `${folder}${name}`, 'episode'));
  return records.filter((episode) => episode !== null);
}

export interface Comparison {
  before: EvaluationFigure;
  after: EvaluationFigure;
  /** False while only a smaller suite was played after the baseline: its tasks are the first ones of the larger. */
  sameTasks: boolean;
}

/** The evaluation before the first GRPO step, and the newest one after it: of the same suite where there is one. */
export function beforeAndAfter(history: RunHistory): Comparison | null {
  const firstGrpo = history.updates.find((update) => update.identity.kind === 'grpo')?.identity.step ?? null;
  if (firstGrpo === null) return null;
  const before = history.evaluations.filter((figure) => figure.step < firstGrpo).at(-1);
  const baseline =
    history.evaluations.find((one) => one.step === firstGrpo - 1 && one.result.suite_name === 'final') ??
    before;
  const later = history.evaluations.filter((figure) => figure.step >= firstGrpo);
  const after =
    later.findLast((figure) => figure.result.suite === baseline?.result.suite) ?? newestEvaluation(later);
  if (!baseline || !after) return null;
  return { before: baseline, after, sameTasks: baseline.result.suite === after.result.suite };
}

/** Of the newest state; of its suites the one with the most episodes. */
export function newestEvaluation(evaluations: readonly EvaluationFigure[]): EvaluationFigure | null {
  const step = Math.max(...evaluations.map((figure) => figure.step));
  const newest = evaluations.filter((figure) => figure.step === step);
  return newest.sort((a, b) => b.result.graded - a.result.graded)[0] ?? null;
}
