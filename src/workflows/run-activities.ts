// The activities as the workflow calls them: stable ids (`step-000120/update`) that operators can address, and a summary each.
import { proxyActivities } from '@temporalio/workflow';
import type { ActivityOptions } from '@temporalio/workflow';
import type { NodeActivities, OrchestratorActivities, TransferActivities } from '../activities/contracts.js';
import { engineQueue, transferQueue } from './messages.js';

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

export function onTransfers(node: string, id: string, summary: string, policy: ActivityOptions) {
  return proxyActivities<TransferActivities>({
    ...policy,
    taskQueue: transferQueue(node),
    activityId: id,
    summary,
  });
}
