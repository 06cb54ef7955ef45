// Continues a workflow as new, and tells when a new build of the orchestrator makes that necessary. With worker versioning, the server pins
// one execution to the build that began it, so its code never changes.
import { makeContinueAsNewFunc, type Workflow, workflowInfo } from '@temporalio/workflow';

/** True when workers of a newer build are running: the workflow moves to that build when it next continues as new. */
export function newBuildWaits(): boolean {
  return workflowInfo().targetWorkerDeploymentVersionChanged;
}

/** Continues as new on the newest build; a pinned workflow would otherwise stay on its own build for ever. */
export function continueOnCurrentBuild<F extends Workflow>(...args: Parameters<F>): Promise<never> {
  const versioned = workflowInfo().currentDeploymentVersion?.deploymentName;
  return makeContinueAsNewFunc<F>(versioned ? { initialVersioningBehavior: 'AUTO_UPGRADE' } : {})(...args);
}
