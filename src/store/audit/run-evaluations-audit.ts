// Checks the evaluations that a run names as its own: each measures one of the run's states and has a result.
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { AuditReport } from './audit-report.js';
import { evaluationResultKey, runEvaluationKey, runEvaluationsFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';

/** `states`: the state after each committed step; null if the chain does not show it. */
export async function auditEvaluated(
  store: ObjectStore,
  { run }: RunRecord,
  states: readonly (Digest | null)[],
  report: AuditReport,
): Promise<void> {
  const folder = runEvaluationsFolder(run);
  for (const name of await store.listFolder(folder)) {
    const key = `${folder}${name}`;
    const record = await report.read(store, key, 'evaluated');
    if (!record) continue;
    const { step, suite_name, state, suite } = record;
    if (record.run !== run || runEvaluationKey(run, step, suite_name) !== key) {
      report.add('R13', key, `it says ${suite_name} of step ${step} of ${record.run}`);
      continue;
    }
    const own = states[step];
    // A running run may have committed the step after the audit read the chain.
    if (own !== undefined && own !== null && own !== state)
      report.add('R13', key, `it names state ${state}, but the run has ${own} after step ${step}`);
    if ((await store.head(evaluationResultKey(state, suite))) === null)
      report.add('R13', key, 'the evaluation that it names has no result');
  }
}
