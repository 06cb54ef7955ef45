// The activities as the workflow calls them: each has a stable id (`step-000120/update`) that operators can use, and a summary.
import { proxyActivities, type ActivityOptions } from '@temporalio/workflow';
import type {
  NodeActivities,
  OrchestratorActivities,
  StepReference,
  TransferActivities,
} from '../activities/contracts.js';
import { withCheckedAnswers } from './activity-result-checks.js';
import type { Interruptions } from './interruptions.js';
import { engineQueue, transferQueue } from './messages.js';
import { checkpointPolicy, enginePolicy, lastCheckpointPolicy } from './policies.js';

export function stepId(step: number, name: string): string {
  return `step-${String(step).padStart(6, '0')}/${name}`;
}

export interface Place {
  node: string;
  /** Project of the run: when work waits in the node's queue, projects take turns. */
  project: string;
  /** Interruptions to report with the next activity; absent if the work does not belong to a run. */
  interruptions?: Interruptions;
  /** Above 0 while an earlier activity for the same work may still be open on a lost node: its id is in use until it ends. */
  tries: number;
}

/** Activities on the workflow's own task queue. */
export function orchestrator(id: string, summary: string, policy: ActivityOptions) {
  const activities = proxyActivities<OrchestratorActivities>({ ...policy, activityId: id, summary });
  return withCheckedAnswers(activities, id);
}

export function onEngine(place: Place, id: string, summary: string, policy: ActivityOptions = enginePolicy) {
  const activityId = idAt(place, id);
  const onNode = { taskQueue: engineQueue(place.node), priority: { fairnessKey: place.project } };
  const activities = proxyActivities<NodeActivities>({ ...policy, ...onNode, activityId, summary });
  return withCheckedAnswers(activities, activityId, place.interruptions);
}

function onTransfers(place: Place, id: string, summary: string, policy: ActivityOptions) {
  return proxyActivities<TransferActivities>({
    ...policy,
    taskQueue: transferQueue(place.node),
    priority: { fairnessKey: place.project },
    activityId: idAt(place, id),
    summary,
  });
}

/** The activity id with the number of the try. Attempt records use it as a key, so it may contain only a key's characters. */
function idAt({ tries }: Place, id: string): string {
  return tries === 0 ? id : `${id}.${tries}`;
}

/** Saves the state after the step on the node's disk. */
export async function saveOn(
  place: Place,
  at: StepReference & { spare?: number },
  summary: string,
): Promise<void> {
  await onEngine(place, stepId(at.step, 'save'), summary, checkpointPolicy).saveState(at);
}

/** Uploads the saved state to the store. `restore`: after the run's last step, when the upload may take as long as it needs. */
export async function uploadFrom(
  place: Place,
  at: StepReference,
  summary: string,
  last: { restore?: true },
): Promise<void> {
  const policy = last.restore ? lastCheckpointPolicy : checkpointPolicy;
  await onTransfers(place, stepId(at.step, 'upload'), summary, policy).uploadCheckpoint({ ...at, ...last });
}
