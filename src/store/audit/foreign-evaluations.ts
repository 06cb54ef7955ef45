// Finds evaluations that name a run but measure a state that the run never had: they would enter the run's figures.
import type { Digest } from '../../spec/records/parts.js';
import type { AuditReport } from './audit-report.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationResultKey, evaluationsOfState, evaluationsRoot } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { listRuns, readUpdateIfAny } from '../runs/run-records.js';

/**
 * `states`: the states of the run's chain, by step. An evaluation that names another run is left to that run's audit; if that run is not in
 * the store, the evaluation is listed in the report's `notClaimed`.
 */
export async function checkForeignEvaluations(
  store: ObjectStore,
  run: string,
  states: readonly (Digest | null)[],
  report: AuditReport,
): Promise<void> {
  const own = new Set(states);
  const others = (await store.listFolder(evaluationsRoot))
    .map((name) => name.replace(/\/$/, ''))
    .filter((state) => /^[0-9a-f]{64}$/.test(state) && !own.has(state));
  const runs = new Set(await listRuns(store));
  await inParallel(others, async (state) => {
    for (const name of await store.listFolder(evaluationsOfState(state))) {
      const suite = name.replace(/\/$/, '');
      if (!/^[0-9a-f]{64}$/.test(suite)) continue;
      const key = evaluationResultKey(state, suite);
      const result = await report.read(store, key, 'evaluation');
      if (result && !runs.has(result.observed.run))
        report.notClaimed.push(`${key}: it names the run ${result.observed.run}, which is not in the store`);
      if (result?.observed.run !== run) continue;
      const { step } = result.observed;
      // A running run may have committed the step after the audit read the chain.
      if (step >= states.length && (await readUpdateIfAny(store, run, step))?.identity.state === state)
        continue;
      report.add(
        'R5',
        key,
        `it says that ${run} had this state after step ${step}, but the chain has no such state`,
      );
    }
  });
}
