// How the commands find Temporal and a run's workflow: flags, then the `temporal` CLI's own profile, then the stack in this folder.
import { accessSync, constants } from 'node:fs';
import { type Command, Option } from 'commander';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { nameOfRun } from '../store/layout.js';
import { plainTemporalConfig, readTemporalConfig, type TemporalConfig } from '../workers/config.js';
import { defaultStackFolder } from './output.js';
import { runningStack, type StackAddresses } from '../workers/stack.js';
import { connectClient } from '../workers/temporal-connection.js';
import { refusalOf } from '../workers/temporal-refusal.js';
import type { trainingRun } from '../workflows/training-run.js';

/** Where nobody has named a server and no stack runs, hardly any is there. */
const unnamedServerDeadlineMs = 1_000;

export interface TemporalFlags {
  temporalAddress?: string;
  namespace?: string;
  /** Where a person has named one: a mistyped one must not lead to another server's runs. */
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
    .addOption(
      new Option('--folder <folder>', `folder of the embedded stack (default: ${defaultStackFolder})`),
    );
}

export interface TemporalPlace {
  config: TemporalConfig;
  stack: StackAddresses | null;
  /** False where only the default address is left to try. */
  named: boolean;
  /** Says which server is used where the environment names another one than the folder's; null where there is no doubt. */
  note: string | null;
}

/** Throws where a folder is named in which no stack runs, and no server beside it. */
export function temporalConfig(flags: TemporalFlags): TemporalPlace {
  const stack = runningStack(flags.folder ?? defaultStackFolder);
  if (flags.folder !== undefined && !stack && !flags.temporalAddress)
    throw new Error(noStackIn(flags.folder));
  const profile = readTemporalConfig(flags.namespace ? { namespace: flags.namespace } : {});
  const isDefault = profile.address === 'localhost:7233' && !process.env['TEMPORAL_ADDRESS'];
  const address = flags.temporalAddress ?? (isDefault ? stack?.temporal : undefined);
  if (stack && address === stack.temporal)
    return { config: plainTemporalConfig(address, flags.namespace), stack, named: true, note: null };
  const config = address
    ? readTemporalConfig({ address, ...(flags.namespace ? { namespace: flags.namespace } : {}) })
    : profile;
  const named = address !== undefined || !isDefault;
  const isOfStack = stack?.temporal === config.address;
  const passedOver = flags.folder !== undefined && !flags.temporalAddress && !isOfStack;
  const note = passedOver
    ? `${namedBy()} ${config.address}: that server is asked, and not the stack in ${flags.folder}`
    : null;
  return { config, stack: isOfStack ? stack : null, named, note };
}

function namedBy(): string {
  return process.env['TEMPORAL_ADDRESS'] ? 'TEMPORAL_ADDRESS names' : 'the profile of the temporal CLI names';
}

function noStackIn(folder: string): string {
  try {
    accessSync(folder, constants.R_OK | constants.X_OK);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    if (code !== 'ENOENT')
      return `the folder ${folder} cannot be read (${code}), so that its stack cannot be found: read it as the user that started it`;
  }
  return (
    `no stack runs in ${folder}: correct --folder, or start that stack with \`longhaul up --folder ${folder}\`; ` +
    'another server is named with --temporal-address'
  );
}

/** Closes the connection whatever `use` does. */
export async function withClient<T>(flags: TemporalFlags, use: (client: Client) => Promise<T>): Promise<T> {
  const { config, named, note } = temporalConfig(flags);
  if (note !== null) process.stderr.write(`${note}\n`);
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
