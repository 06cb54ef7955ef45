// How a workflow continues as new, and when a new build of the orchestrator asks for it. Within one execution the code stays the same if
// workers are versioned: the server pins it to the build that began it.
import { makeContinueAsNewFunc, type Workflow, workflowInfo } from '@temporalio/workflow';

/** True when workers of another build are current: the workflow moves to them when it next continues as new. */
export function newBuildWaits(): boolean {
  return workflowInfo().targetWorkerDeploymentVersionChanged;
}

/** `continueAsNew` on the build that is current then; without it a pinned workflow would stay on its own build for ever. */
export function continueOnCurrentBuild<F extends Workflow>(...args: Parameters<F>): Promise<never> {
  const versioned = workflowInfo().currentDeploymentVersion?.deploymentName;
  return makeContinueAsNewFunc<F>(versioned ? { initialVersioningBehavior: 'AUTO_UPGRADE' } : {})(...args);
}
