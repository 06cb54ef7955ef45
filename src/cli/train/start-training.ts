// Starts a run's workflow as `temporal workflow start --type trainingRun --task-queue longhaul -w train/NAME` does, but for one
// number: its workflow tasks time out after 5 s, where the server's default, and so that command's without `--task-timeout 5s`,
// is 10 s.
import { type Client, WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { refuseDifference } from '../../activities/run/open-run.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { parseRunSpec } from '../../spec/spec-input.js';
import { orchestratorQueue } from '../../workflows/messages.js';
import type { trainingRun } from '../../workflows/run/training-run.js';
import type { TrainingOptions } from '../../workflows/run/training-options.js';
import { type RunHandle, runHandle, workflowIdOf } from '../temporal-access.js';
import { inputOfWorkflow } from './workflow-input.js';

export interface StartedRun {
  handle: RunHandle;
  /** False where its workflow was running already. */
  started: boolean;
}

/** Throws `InvalidSpec` with the difference where the run is under way with another spec. */
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
      ...shownAs(spec),
      // Its tasks take milliseconds; one that a killed orchestrator took is given to the next one after this.
      workflowTaskTimeout: '5 seconds',
    });
    return { handle: runHandle(client, spec.name), started: true };
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    const running = await runningSpec(client, spec.name);
    if (running) refuseDifference(spec.name, running, spec);
    return { handle: runHandle(client, spec.name), started: false };
  }
}

/** What the Temporal UI shows also where no worker answers: it is in the history, so it is short. */
function shownAs({ name, project, model, trainer }: RunSpec) {
  return {
    staticSummary: `trains ${model.name} · ${project} · ${trainer.max_training_steps} steps of GRPO`,
    staticDetails: [
      `Training run \`${name}\`. *Current details* show it live, with the commands that steer it, while a worker answers.`,
      `Whatever ends this workflow, the run goes on from its records: \`longhaul train --run ${name}\``,
    ].join('\n\n'),
  };
}

/** The spec that the running workflow was started with; null where its input cannot be read here. */
async function runningSpec(client: Client, name: string): Promise<RunSpec | null> {
  const input = await inputOfWorkflow(client, workflowIdOf(name));
  try {
    return input === null ? null : parseRunSpec(input);
  } catch {
    // A spec that the workflow is about to refuse itself.
    return null;
  }
}

/** The sentence that a failed or cancelled workflow leaves: causes are nested, the innermost one is for people. */
export function whyItEnded(error: unknown): string {
  let inner: unknown = error;
  while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause;
  return inner instanceof Error ? inner.message : String(inner);
}
