// How a workflow begins anew, and when a new build of the orchestrator asks for it. Within one execution the code stays the same
// where workers are versioned: the server pins it to the build that began it.
import { makeContinueAsNewFunc, type Workflow, workflowInfo } from '@temporalio/workflow';

/** True when workers of another build are current: at the next new beginning the workflow goes to them. */
export function newBuildWaits(): boolean {
  return workflowInfo().targetWorkerDeploymentVersionChanged;
}

/** As `continueAsNew`, on the build that is current then; without it a pinned workflow would stay on its own for ever. */
export function beginAnew<F extends Workflow>(...args: Parameters<F>): Promise<never> {
  const versioned = workflowInfo().currentDeploymentVersion?.deploymentName;
  return makeContinueAsNewFunc<F>(versioned ? { initialVersioningBehavior: 'AUTO_UPGRADE' } : {})(...args);
}
