// How the commands find Temporal and a run's workflow: flags, then the `temporal` CLI's own profile, then the stack in this folder.
import { type Command, Option } from 'commander';
import {
  type Client,
  type WorkflowHandle,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
} from '@temporalio/client';
import { nameOfRun } from '../store/layout.js';
import { plainTemporalConfig, readTemporalConfig, type TemporalConfig } from '../workers/config.js';
import { runningStack, type StackAddresses } from '../workers/stack.js';
import { connectClient } from '../workers/temporal-connection.js';
import { refusalOf } from '../workers/temporal-refusal.js';
import type { trainingRun } from '../workflows/training-run.js';

export const defaultStackFolder = '.longhaul';

export interface TemporalFlags {
  temporalAddress?: string;
  namespace?: string;
  folder?: string;
}

export function withTemporalFlags(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--temporal-address <host:port>',
        'Temporal server (default: TEMPORAL_ADDRESS, a profile, or the stack in --folder)',
      ),
    )
    .addOption(new Option('--namespace <name>', 'Temporal namespace'))
    .addOption(new Option('--folder <folder>', 'folder of the embedded stack').default(defaultStackFolder));
}

export function temporalConfig(flags: TemporalFlags): {
  config: TemporalConfig;
  stack: StackAddresses | null;
} {
  const stack = runningStack(flags.folder ?? defaultStackFolder);
  const named = readTemporalConfig(flags.namespace ? { namespace: flags.namespace } : {});
  const isDefault = named.address === 'localhost:7233' && !process.env['TEMPORAL_ADDRESS'];
  const address = flags.temporalAddress ?? (isDefault ? stack?.temporal : undefined);
  if (stack && address === stack.temporal)
    return { config: plainTemporalConfig(address, flags.namespace), stack };
  const config = address
    ? readTemporalConfig({ address, ...(flags.namespace ? { namespace: flags.namespace } : {}) })
    : named;
  return { config, stack: stack?.temporal === config.address ? stack : null };
}

/** Closes the connection whatever `use` does. */
export async function withClient<T>(flags: TemporalFlags, use: (client: Client) => Promise<T>): Promise<T> {
  const { config } = temporalConfig(flags);
  const { client, close } = await connectClient(config);
  try {
    return await use(client);
  } catch (error) {
    // A server may greet everybody, and ask for a key where its namespaces are used.
    throw refusalOf(error, config) ?? error;
  } finally {
    await close();
  }
}

export type RunHandle = WorkflowHandle<typeof trainingRun>;

export function runHandle(client: Client, run: string): RunHandle {
  return client.workflow.getHandle<typeof trainingRun>(workflowIdOf(run));
}

/** A run's name, its id (of any timeline: one workflow drives the name's newest) and its workflow id are understood. */
export function workflowIdOf(run: string): string {
  return nameOfRun(run.startsWith('train/') ? run : `train/${run}`);
}

/** Says in one sentence what Temporal answered to a control verb. */
export async function explained<T>(run: string, answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) {
      throw new Error(
        `no workflow drives ${run} now: see \`longhaul runs\`; a run that has ended goes on with \`longhaul train SPEC\``,
        { cause: error },
      );
    }
    if (error instanceof WorkflowUpdateFailedError)
      throw new Error(error.cause?.message ?? error.message, { cause: error });
    throw error;
  }
}
