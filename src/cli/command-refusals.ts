// Turns Temporal's refusal of a command into one sentence that also says how to continue, and refuses inputs that are too large for it.
import { WorkflowNotFoundError, WorkflowUpdateFailedError } from '@temporalio/client';
import { nameOfRun } from '../store/record-keys.js';
import { inFolder } from './output.js';
import type { RunHandle, TemporalFlags } from './temporal-access.js';
import { InvalidSpec } from '../spec/invalid-spec.js';

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

/** A Temporal server takes 2 MiB in one payload; the rest is for what travels with the input. */
const mostBytes = 2 * 1024 * 1024 - 64 * 1024;

const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value) ?? '');
const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(2)} MB`;

/** Throws `InvalidSpec` for an input that a Temporal server would refuse; names its size, the limit and its largest part. `where`: what it is. */
export function refuseLargeInput(spec: object, where: string): void {
  const size = bytesOf(spec);
  if (size <= mostBytes) return;
  const [key, largest] = Object.entries(spec)
    .map(([name, value]) => [name, bytesOf(value)] as const)
    .reduce((most, one) => (one[1] > most[1] ? one : most));
  const problem = `takes ${megabytes(size)} as JSON, and the limit is ${megabytes(mostBytes)}; ${key} alone takes ${megabytes(largest)}`;
  throw new InvalidSpec(
    [{ path: '', problem: `it ${problem}`, fix: `shorten the texts of ${key}, or have fewer entries` }],
    where,
  );
}
