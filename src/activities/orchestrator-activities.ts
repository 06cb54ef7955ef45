// The activities of the queue `longhaul`.
import { collectGarbage } from './collect-garbage.js';
import { compareSweep } from './compare-sweep.js';
import type { OrchestratorActivities } from './contracts.js';
import { withFailures } from './failure-mapping.js';
import { withRunView } from './run-view.js';
import { openRun } from './open-run.js';
import type { OrchestratorDeps } from './orchestrator-deps.js';
import { planStep } from './plan-step.js';
import { pairsToDo, planSweep } from './plan-sweep.js';
import { recovering } from './recovery.js';
import { recordControl } from './record-control.js';
import { publishReport } from './publish-report.js';
import { closedRuns, requestLease } from './request-lease.js';
import { currentScope } from './scope.js';
import type { SweepActivities } from './sweep-contracts.js';

export function createOrchestratorActivities(
  deps: OrchestratorDeps,
): OrchestratorActivities & SweepActivities {
  return {
    openRun: withFailures((input) => openRun(deps, input, currentScope().signal)),
    requestLease: withFailures(withRunView(deps, requestLease)),
    closedRuns: withFailures((input) => closedRuns(deps, input)),
    recordControl: withFailures((input) => recordControl(deps, input)),
    planStep: withFailures(withRunView(deps, recovering(planStep))),
    collectGarbage: withFailures((input) => collectGarbage(deps, input)),
    writeReport: withFailures(withRunView(deps, publishReport)),
    planSweep: withFailures((input) => planSweep(deps, input, currentScope().signal)),
    pairsToDo: withFailures((input) => pairsToDo(deps, input)),
    compareSweep: withFailures((input) => compareSweep(deps, input, currentScope())),
  };
}
