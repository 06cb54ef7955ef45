// Finds the evaluations of a run: its own, or adopted from another run with the same state. Results are stored by state, and each
// run has records that name the evaluations it uses.
import type { EvaluatedRecord, EvaluationResult } from '../../spec/records/evaluation-records.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationResultKey, runEvaluationsFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord, requireRecord } from '../records/records.js';

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
