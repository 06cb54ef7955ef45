// What a run did, gathered from its records alone.
import type {
  ControlRecord,
  EpisodeRecord,
  EvaluationResult,
  OwnerRecord,
  RunRecord,
  UpdateRecord,
} from '../spec/records.js';
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

const readsAtOnce = 32;

export async function readHistory(store: ObjectStore, run: string): Promise<RunHistory> {
  const record = await readRun(store, run);
  const last = await lastCommittedStep(store, run);
  const steps = Array.from({ length: Math.max(last, 0) }, (_, index) => index + 1);
  const updates = await inParallel(steps, (step) => readUpdate(store, run, step));
  const states = last < 0 ? [] : [{ step: 0, state: await readState(store, run, 0) }];
  for (const { identity } of updates)
    if (identity.applied === true) states.push({ step: identity.step, state: identity.state });
  const evaluations = (
    await inParallel(states, ({ step, state }) => evaluationsAt(store, step, state))
  ).flat();
  return {
    record,
    updates,
    evaluations,
    owners: await readSequence(store, ownersFolder(run), 'owner'),
    control: await readSequence(store, controlFolder(run), 'control'),
  };
}

async function evaluationsAt(store: ObjectStore, step: number, state: string): Promise<EvaluationFigure[]> {
  const suites = await store.listFolder(evaluationsOfState(state));
  const figures: EvaluationFigure[] = [];
  for (const folder of suites) {
    const suite = folder.replace(/\/$/, '');
    const result = await readRecord(store, evaluationResultKey(state, suite), 'evaluation');
    if (result) figures.push({ step, result });
  }
  return figures.sort((a, b) => a.result.suite_name.localeCompare(b.result.suite_name));
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

/** Engine processes that committed a step, less one: how often the engine was started anew. */
export function engineRestarts(history: RunHistory): number {
  const incarnations = new Set(history.updates.map((update) => update.observed.engine.incarnation));
  return Math.max(incarnations.size - 1, 0);
}

/** The evaluation by suite before the first GRPO step, and the newest one. */
export function beforeAndAfter(
  history: RunHistory,
  suite = 'final',
): { before: EvaluationFigure; after: EvaluationFigure } | null {
  const firstGrpo = history.updates.find((update) => update.identity.kind === 'grpo')?.identity.step ?? null;
  if (firstGrpo === null) return null;
  const figures = history.evaluations.filter((figure) => figure.result.suite_name === suite);
  const before = figures.find((figure) => figure.step === firstGrpo - 1);
  const after = figures.at(-1);
  return before && after && after.step >= firstGrpo ? { before, after } : null;
}

export async function inParallel<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = new Array<R>(items.length);
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let index = next++; index < items.length; index = next++)
      results[index] = await work(items[index] as T);
  };
  await Promise.all(Array.from({ length: Math.min(readsAtOnce, items.length) }, worker));
  return results;
}
