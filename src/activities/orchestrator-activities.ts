// The activities of the queue `longhaul`.
import { collectGarbage } from './run/collect-garbage.js';
import { compareSweep } from './evaluation/compare-sweep.js';
import type { OrchestratorActivities } from './contracts.js';
import { withFailures } from './attempt/failure-mapping.js';
import { withRunView } from './attempt/run-view.js';
import { openRun } from './run/open-run.js';
import type { OpenedDeps } from './orchestrator-deps.js';
import { planStep } from './step/plan-step.js';
import { withFaultTotals } from './reports/fault-totals.js';
import { pairsToDo, planSweep } from './evaluation/plan-sweep.js';
import { planWave } from './step/plan-wave.js';
import { recovering } from './attempt/recovery.js';
import { recordControl } from './run/record-control.js';
import { publishReport } from './reports/publish-report.js';
import { closedRuns, requestLease } from './run/request-lease.js';
import { currentScope } from './attempt/scope.js';
import type { DataActivities } from './data-contracts.js';
import { finishDataset } from './data/finish-dataset.js';
import { gateTasks } from './data/gate-tasks.js';
import { teachTasks } from './data/teach-tasks.js';
import { gatherDataset } from './data/gather-dataset.js';
import type { SweepActivities } from './sweep-contracts.js';

export function createOrchestratorActivities(
  deps: OpenedDeps,
): OrchestratorActivities & SweepActivities & DataActivities {
  return {
    openRun: withFailures((input) => openRun(deps, input, currentScope().signal)),
    requestLease: withFailures(withRunView(deps, requestLease)),
    closedRuns: withFailures((input) => closedRuns(deps, input)),
    recordControl: withFailures((input) => recordControl(deps, input)),
    planStep: withFailures(withRunView(deps, withFaultTotals(recovering(planStep)))),
    planWave: withFailures(withRunView(deps, recovering(planWave))),
    collectGarbage: withFailures((input) => collectGarbage(deps, input)),
    writeReport: withFailures(withRunView(deps, publishReport)),
    planSweep: withFailures((input) => planSweep(deps, input, currentScope().signal)),
    pairsToDo: withFailures((input) => pairsToDo(deps, input)),
    compareSweep: withFailures((input) => compareSweep(deps, input, currentScope())),
    gatherDataset: withFailures((input) => gatherDataset(deps, input, currentScope().signal)),
    teachTasks: withFailures((input) => teachTasks(deps, input, currentScope())),
    gateTasks: withFailures((input) => gateTasks(deps, input, currentScope())),
    finishDataset: withFailures((input) => finishDataset(deps, input, currentScope().signal)),
  };
}
