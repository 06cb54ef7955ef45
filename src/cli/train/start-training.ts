// Starts a run's workflow as `temporal workflow start --type trainingRun --task-queue longhaul -w train/NAME` does, with one difference:
// its workflow tasks time out after 5 s instead of the server's default of 10 s. `--task-timeout 5s` gives that command the same time-out.
import { type Client, WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { refuseDifference } from '../../activities/run/open-run.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { parseRunSpec } from '../../spec/spec-input.js';
import { orchestratorQueue } from '../../workflows/messages.js';
import type { trainingRun } from '../../workflows/run/training-run.js';
import type { TrainingOptions } from '../../workflows/run/training-options.js';
import { refuseLargeInput } from '../command-refusals.js';
import { type RunHandle, runHandle, workflowIdOf } from '../temporal-access.js';
import { inputOfWorkflow } from './workflow-input.js';

interface StartedRun {
  handle: RunHandle;
  /** False if the workflow was already running. */
  started: boolean;
}

/** Throws `InvalidSpec`, with the difference, if the run is already running with another spec. */
export async function startTraining(
  client: Client,
  spec: RunSpec,
  options: TrainingOptions = {},
): Promise<StartedRun> {
  refuseLargeInput(spec, 'the run spec');
  try {
    await client.workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: orchestratorQueue,
      workflowId: workflowIdOf(spec.name),
      args: options.takeOver ? [spec, options] : [spec],
      workflowIdReusePolicy: 'ALLOW_DUPLICATE',
      workflowIdConflictPolicy: 'FAIL',
      ...shownAs(spec),
      // A workflow task takes milliseconds. If its orchestrator is killed, another orchestrator gets the task after this time.
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

/** The Temporal UI shows this text even without a worker. It is kept in the history, so it is short. */
export function shownAs({ name, project, model, trainer }: RunSpec) {
  return {
    staticSummary: `trains ${model.name} · ${project} · ${trainer.max_training_steps} steps of GRPO`,
    staticDetails: [
      `*Current details* show the progress of the run \`${name}\` and the commands that control it, as long as a worker answers.`,
      `If this workflow ends for any reason, continue the run from its records: \`longhaul train --run ${name}\``,
    ].join('\n\n'),
  };
}

/** The spec that the running workflow was started with; null if its input cannot be decoded here. */
async function runningSpec(client: Client, name: string): Promise<RunSpec | null> {
  const input = await inputOfWorkflow(client, workflowIdOf(name));
  try {
    return input === null ? null : parseRunSpec(input);
  } catch {
    // The workflow itself is about to refuse this spec.
    return null;
  }
}

/** The reason of a failed or cancelled workflow. Causes are nested; the innermost one is written for people. */
export function whyItEnded(error: unknown): string {
  let inner: unknown = error;
  while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause;
  return inner instanceof Error ? inner.message : String(inner);
}
