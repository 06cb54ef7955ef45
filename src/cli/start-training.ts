// Starts a run's workflow exactly as `temporal workflow start --type trainingRun --task-queue longhaul -w train/NAME` does.
import { type Client, WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import type { RunSpec } from '../spec/run-spec.js';
import { orchestratorQueue } from '../workflows/messages.js';
import type { trainingRun, TrainingOptions } from '../workflows/training-run.js';
import { type RunHandle, runHandle, workflowIdOf } from './temporal-access.js';

export interface StartedRun {
  handle: RunHandle;
  /** False where its workflow was running already. */
  started: boolean;
}

export async function startTraining(
  client: Client,
  spec: RunSpec,
  options: TrainingOptions = {},
): Promise<StartedRun> {
  try {
    await client.workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: orchestratorQueue,
      workflowId: workflowIdOf(spec.name),
      args: options.takeOver ? [spec, options] : [spec],
      workflowIdReusePolicy: 'ALLOW_DUPLICATE',
      workflowIdConflictPolicy: 'FAIL',
      staticSummary: `${spec.name} · ${spec.project} · ${spec.model.name}`,
    });
    return { handle: runHandle(client, spec.name), started: true };
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    return { handle: runHandle(client, spec.name), started: false };
  }
}

/** The sentence that a failed or cancelled workflow leaves: causes are nested, the innermost one is for people. */
export function whyItEnded(error: unknown): string {
  let inner: unknown = error;
  while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause;
  return inner instanceof Error ? inner.message : String(inner);
}
