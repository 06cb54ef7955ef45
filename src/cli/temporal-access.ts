// How the commands find Temporal and a run's workflow: flags, then the `temporal` CLI's own profile, then the stack in this folder.
import { type Command, Option } from 'commander';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { nameOfRun } from '../store/layout.js';
import { plainTemporalConfig, readTemporalConfig, type TemporalConfig } from '../workers/config.js';
import { defaultStackFolder, folderOption } from './output.js';
import { runningStack, type StackAddresses } from '../workers/stack.js';
import { connectClient } from '../workers/temporal-connection.js';
import { refusalOf } from '../workers/temporal-refusal.js';
import type { trainingRun } from '../workflows/training-run.js';

/** Where nobody has named a server and no stack runs, hardly any is there. */
const unnamedServerDeadlineMs = 1_000;

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
    .addOption(folderOption());
}

export function temporalConfig(flags: TemporalFlags): {
  config: TemporalConfig;
  stack: StackAddresses | null;
  /** False where only the default address is left to try. */
  named: boolean;
} {
  const stack = runningStack(flags.folder ?? defaultStackFolder);
  const profile = readTemporalConfig(flags.namespace ? { namespace: flags.namespace } : {});
  const isDefault = profile.address === 'localhost:7233' && !process.env['TEMPORAL_ADDRESS'];
  const address = flags.temporalAddress ?? (isDefault ? stack?.temporal : undefined);
  if (stack && address === stack.temporal)
    return { config: plainTemporalConfig(address, flags.namespace), stack, named: true };
  const config = address
    ? readTemporalConfig({ address, ...(flags.namespace ? { namespace: flags.namespace } : {}) })
    : profile;
  const named = address !== undefined || !isDefault;
  return { config, stack: stack?.temporal === config.address ? stack : null, named };
}

/** Closes the connection whatever `use` does. */
export async function withClient<T>(flags: TemporalFlags, use: (client: Client) => Promise<T>): Promise<T> {
  const { config, named } = temporalConfig(flags);
  const { client, close } = await connectClient(config, named ? undefined : unnamedServerDeadlineMs);
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
