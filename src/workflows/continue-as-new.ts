// Continues a workflow as new, and says when another build of the orchestrator has become current. With worker versioning, the server pins
// one execution to the build that began it, so its code never changes.
import { makeContinueAsNewFunc, type Workflow, workflowInfo } from '@temporalio/workflow';

/** True when another build has become current: the workflow moves to it when it next continues as new. */
export function newBuildWaits(): boolean {
  return workflowInfo().targetWorkerDeploymentVersionChanged;
}

/** Continues as new on the current build; a pinned workflow would otherwise stay on its own build for ever. */
export function continueOnCurrentBuild<F extends Workflow>(...args: Parameters<F>): Promise<never> {
  const versioned = workflowInfo().currentDeploymentVersion?.deploymentName;
  return makeContinueAsNewFunc<F>(versioned ? { initialVersioningBehavior: 'AUTO_UPGRADE' } : {})(...args);
}
