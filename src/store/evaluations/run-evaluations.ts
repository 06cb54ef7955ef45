// Which evaluations are a run's: played by itself or adopted from another that had the same state. Results are filed by state, and
// each run names those that it stands on.
import type { EvaluatedRecord, EvaluationResult } from '../../spec/records/evaluation-records.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationResultKey, evaluationSuiteKey, runEvaluationsFolder } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord, requireRecord } from '../records/records.js';

/** In the order of steps; those of the run's own timeline alone. */
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

/** True for an evaluation of a version before the second: then no record says which runs stand on it. */
export async function isUnnamed(store: ObjectStore, { state, suite }: EvaluationResult): Promise<boolean> {
  const record = await readRecord(store, evaluationSuiteKey(state, suite), 'suite');
  return record === null || record.schema === 'longhaul.suite/1';
}

/** Null where it was set aside and is not played again yet. */
export function readEvaluated(
  store: ObjectStore,
  { state, suite }: EvaluatedRecord,
): Promise<EvaluationResult | null> {
  return readRecord(store, evaluationResultKey(state, suite), 'evaluation');
}
