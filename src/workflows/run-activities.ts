// The activities as the workflow calls them: stable ids (`step-000120/update`) that operators can address, and a summary each.
import { proxyActivities } from '@temporalio/workflow';
import type { ActivityOptions } from '@temporalio/workflow';
import type {
  NodeActivities,
  OrchestratorActivities,
  StepReference,
  TransferActivities,
} from '../activities/contracts.js';
import { engineQueue, transferQueue } from './messages.js';
import { checkpointPolicy, lastCheckpointPolicy } from './policies.js';

export function stepId(step: number, name: string): string {
  return `step-${String(step).padStart(6, '0')}/${name}`;
}

/** On the workflow's own task queue. */
export function orchestrator(id: string, summary: string, policy: ActivityOptions) {
  return proxyActivities<OrchestratorActivities>({ ...policy, activityId: id, summary });
}

export function onEngine(node: string, id: string, summary: string, policy: ActivityOptions) {
  return proxyActivities<NodeActivities>({
    ...policy,
    taskQueue: engineQueue(node),
    activityId: id,
    summary,
  });
}

function onTransfers(node: string, id: string, summary: string, policy: ActivityOptions) {
  return proxyActivities<TransferActivities>({
    ...policy,
    taskQueue: transferQueue(node),
    activityId: id,
    summary,
  });
}

/** Puts the state after the step on the node's disk. */
export async function saveOn(node: string, at: StepReference, summary: string): Promise<void> {
  await onEngine(node, stepId(at.step, 'save'), summary, checkpointPolicy).saveState(at);
}

/** Carries it to the store; `restore`: after the run's last step, as long as it takes. */
export async function uploadFrom(
  node: string,
  at: StepReference,
  summary: string,
  last: { restore?: true },
): Promise<void> {
  const policy = last.restore ? lastCheckpointPolicy : checkpointPolicy;
  await onTransfers(node, stepId(at.step, 'upload'), summary, policy).uploadCheckpoint({ ...at, ...last });
}
