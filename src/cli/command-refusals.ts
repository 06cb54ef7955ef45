// Turns Temporal's refusal of a command into one sentence that also says how to continue.
import { WorkflowNotFoundError, WorkflowUpdateFailedError } from '@temporalio/client';
import { nameOfRun } from '../store/record-keys.js';
import { inFolder } from './output.js';
import type { RunHandle, TemporalFlags } from './temporal-access.js';

const answerWithinMs = 10_000;
const namesShown = 10;

/**
 * Awaits the answer to a command. If no answer comes, throws an error that says why; `flags` go into the commands that its text suggests.
 */
export async function explained<T>(
  handle: RunHandle,
  answer: Promise<T>,
  flags: TemporalFlags = {},
): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError)
      throw new Error(await whyNotOpen(handle, flags), { cause: error });
    if (error instanceof WorkflowUpdateFailedError)
      throw new Error(error.cause?.message ?? error.message, { cause: error });
    throw error;
  }
}

/** Says why a run's workflow is not open: how it ended, or which runs exist if this one does not. */
export async function whyNotOpen(handle: RunHandle, flags: TemporalFlags): Promise<string> {
  const name = nameOfHandle(handle);
  return handle.client.withDeadline(Date.now() + answerWithinMs, async () => {
    try {
      const { status } = await handle.describe();
      if (status.name === 'COMPLETED') return await howItEnded(handle, flags);
      if (['RUNNING', 'CONTINUED_AS_NEW'].includes(status.name))
        return `the workflow of ${name} has just continued as new: give the command again`;
      const how = status.name.toLowerCase().replaceAll('_', ' ');
      return `the workflow of ${name} has ended (${how}): continue the run with \`${goOn(name, flags)}\``;
    } catch (error) {
      if (!(error instanceof WorkflowNotFoundError)) throw error;
      return `there is no run ${JSON.stringify(name)} on this Temporal server: ${await runsThere(handle, flags)}`;
    }
  });
}

async function howItEnded(handle: RunHandle, flags: TemporalFlags): Promise<string> {
  const { run, ended, step, budget } = await handle.result();
  if (ended === 'stopped')
    return budget
      ? `${run} stopped at step ${step} (${budget}). To continue it, write its spec with \`longhaul spec --run ${run}${inFolder(flags)} > FILE\`, ` +
          `raise the budget in FILE, then \`longhaul train FILE${inFolder(flags)}\``
      : `${run} stopped at step ${step}: continue it with \`${goOn(nameOfRun(run), flags)}\``;
  return (
    `${run} completed at step ${step}: to train it further, fork it with more steps ` +
    `(longhaul fork ${run}@${step} --name NEW --set max_training_steps=N${inFolder(flags)})`
  );
}

/** The command that continues a run that has records. It needs no spec file, because a fork or a rewind has none. */
export function goOn(run: string, flags: TemporalFlags): string {
  return `longhaul train --run ${run}${inFolder(flags)}`;
}

async function runsThere({ client }: RunHandle, flags: TemporalFlags): Promise<string> {
  const names = new Set<string>();
  for await (const { workflowId } of client.list({ query: 'WorkflowType = "trainingRun"' })) {
    names.add(nameOfHandle({ workflowId }));
    if (names.size > namesShown) break;
  }
  const some = [...names].slice(0, namesShown).join(', ');
  if (names.size === 0) return `it has none yet; \`longhaul train SPEC${inFolder(flags)}\` starts one`;
  return `it has ${some}${names.size > namesShown ? ', …' : ''}; \`longhaul runs${inFolder(flags)}\` also lists the runs in the store`;
}

function nameOfHandle({ workflowId }: { workflowId: string }): string {
  return nameOfRun(workflowId.replace(/^train\//, ''));
}
