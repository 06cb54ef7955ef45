// How a command finds Temporal and a run's workflow: first its flags, then the `temporal` CLI's own profile, then the stack in this folder
// or in one above. A command that writes refuses to use a server that nobody named.
import { accessSync, constants } from 'node:fs';
import { type Command, CommanderError, Option } from 'commander';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { nameOfRun } from '../store/record-keys.js';
import {
  namedTemporalAddress,
  plainTemporalConfig,
  readTemporalConfig,
  type TemporalConfig,
} from '../workers/process/config.js';
import {
  openExistingStore,
  printable,
  storeFolderProblem,
  storeOfFolder,
  unreadableStore,
  withOutput,
} from './output.js';
import { defaultStackFolder, nearestStackFolder } from './stack-folder.js';
import { runningStack, type StackAddresses } from '../stack/stack.js';
import { stackOfServer } from '../stack/stack-identity.js';
import { connectClient, TemporalUnreachable } from '../workers/temporal/temporal-connection.js';
import { refusalOf } from '../workers/temporal/temporal-refusal.js';
import type { trainingRun } from '../workflows/run/training-run.js';
import type { ObjectStore } from '../store/objects/object-store.js';

/** Deadline when no server is named and no stack runs: a server at the default address is unlikely. */
const unnamedServerDeadlineMs = 1_000;

/** A command that only reads may try the default address. A command that writes may not. */
type TemporalAccess = 'reads' | 'writes';

export interface TemporalFlags {
  temporalAddress?: string;
  namespace?: string;
  /** Set only if a person named a folder. A mistyped folder is an error: it must not lead to another server's runs. */
  folder?: string;
  /** Set by `withTemporalFlags`. */
  access?: TemporalAccess;
  json?: boolean | undefined;
  /** The command prints its input, starts nothing and asks no server. */
  print?: boolean;
}

/** Adds the options that name a server. A command that writes is refused if options, environment and folders name no server. */
export function withTemporalFlags(command: Command, access: TemporalAccess): Command {
  command.setOptionValue('access', access);
  if (access === 'writes') command.hook('preAction', refuseUnnamedServer);
  return command
    .addOption(
      new Option(
        '--temporal-address <host:port>',
        'Temporal server (default: TEMPORAL_ADDRESS, a profile, or the stack in --folder)',
      ),
    )
    .addOption(new Option('--namespace <name>', 'Temporal namespace'))
    .addOption(
      new Option(
        '--folder <folder>',
        `folder of the embedded stack (default: ${defaultStackFolder} here or in a folder above)`,
      ),
    );
}

/** Thrown when no server is named for a command that would change one. */
export class UnnamedServer extends Error {
  override readonly name = 'UnnamedServer';
}

/** Checked first: if the server is missing, other problems need not be fixed yet. */
async function refuseUnnamedServer(command: Command): Promise<void> {
  const flags = command.opts<TemporalFlags>();
  // A missing file comes before a missing server, and the command says so itself.
  if (flags.print === true || namesMissingFile(command)) return;
  const refuse = withOutput((given: TemporalFlags) => {
    const { source, folder } = temporalConfig(given);
    if (source === null) throw new UnnamedServer(nobodyNamed(folder));
  });
  await refuse(flags);
  if (process.exitCode) throw new CommanderError(Number(process.exitCode), 'longhaul.refused', '');
}

function namesMissingFile({ registeredArguments, args }: Command): boolean {
  const index = registeredArguments.findIndex((one) => ['spec', 'file'].includes(one.name()));
  const path = index < 0 ? undefined : args[index];
  return path !== undefined && !isThere(path);
}

function nobodyNamed(folder: string): string {
  const otherwise = 'or name a server with --temporal-address or TEMPORAL_ADDRESS';
  return isThere(folder)
    ? `no stack runs in ${folder}, and no other Temporal server is named: start that stack with \`longhaul up\`, ${otherwise}`
    : `no Temporal server is named for this command: there is no folder ${defaultStackFolder} here or above. ` +
        `Change to the folder of a stack, name one with --folder, start one with \`longhaul up\`, ${otherwise}`;
}

function isThere(path: string): boolean {
  try {
    accessSync(path);
    return true;
  } catch {
    return false;
  }
}

export interface TemporalPlace {
  config: TemporalConfig;
  stack: StackAddresses | null;
  /** Where the server's name comes from, for people; null if only the default address is left to try. */
  source: string | null;
  /** The stack folder that was searched. */
  folder: string;
  /** Says which server is used if the environment names another server than the folder's stack; null if there is no doubt. */
  note: string | null;
}

/** Throws if a folder is named, no stack runs in it, and no server address is given. */
export function temporalConfig(flags: TemporalFlags): TemporalPlace {
  const folder = flags.folder ?? nearestStackFolder();
  const stack = runningStack(folder);
  if (flags.folder !== undefined && !stack && !flags.temporalAddress)
    throw new UnnamedServer(noStackIn(flags.folder));
  const profile = readTemporalConfig(flags.namespace ? { namespace: flags.namespace } : {});
  const profileNames = namedTemporalAddress() !== null;
  const address = flags.temporalAddress ?? (profileNames ? undefined : stack?.temporal);
  const source = flags.temporalAddress
    ? '--temporal-address'
    : profileNames
      ? profileName()
      : stack
        ? `the stack in ${folder}`
        : null;
  if (stack && address === stack.temporal)
    return { config: plainTemporalConfig(address, flags.namespace), stack, source, folder, note: null };
  const config = address
    ? readTemporalConfig({ address, ...(flags.namespace ? { namespace: flags.namespace } : {}) })
    : profile;
  const isOfStack = stack?.temporal === config.address;
  const passedOver = flags.folder !== undefined && !flags.temporalAddress && !isOfStack;
  const note = passedOver
    ? `${profileName()} names ${config.address}: the command uses that server, not the stack in ${flags.folder}`
    : null;
  return { config, stack: isOfStack ? stack : null, source, folder, note };
}

function profileName(): string {
  return process.env['TEMPORAL_ADDRESS'] ? 'TEMPORAL_ADDRESS' : 'the profile of the temporal CLI';
}

function noStackIn(folder: string): string {
  try {
    accessSync(folder, constants.R_OK | constants.X_OK);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    if (code !== 'ENOENT')
      return `the folder ${folder} cannot be read (${code}), so its stack cannot be found: run the command as the user who started the stack`;
  }
  return (
    `no stack runs in ${folder}: correct --folder, or start that stack with \`longhaul up --folder ${folder}\`; ` +
    'to use another server, name it with --temporal-address'
  );
}

/** Connects, says which server is used, and runs `use`. Closes the connection even if `use` throws. */
export async function withClient<T>(flags: TemporalFlags, use: (client: Client) => Promise<T>): Promise<T> {
  const { config, stack, source, folder, note } = temporalConfig(flags);
  const writes = flags.access === 'writes';
  if (writes && source === null) throw new UnnamedServer(nobodyNamed(folder));
  if (note !== null) process.stderr.write(`${note}\n`);
  const deadlineMs = source === null ? unnamedServerDeadlineMs : undefined;
  const { client, close } = await connectClient(config, deadlineMs, { readOnly: !writes }).catch(
    (error: unknown) => {
      throw source === null && error instanceof TemporalUnreachable
        ? new UnnamedServer(nobodyNamed(folder), { cause: error })
        : error;
    },
  );
  try {
    if (stack) await refuseForeignServer(client, stack, folder);
    // A command that only reads does not repeat an address that was given as a flag.
    if (writes || !flags.temporalAddress) process.stderr.write(`${placeText(config, source)}\n`);
    return await use(client);
  } catch (error) {
    // Some servers accept a connection without a key and ask for it only at the first use of a namespace.
    throw refusalOf(error, config) ?? error;
  } finally {
    await close();
  }
}

/** `on 127.0.0.1:7233, namespace default (from TEMPORAL_ADDRESS)`. */
function placeText({ address, namespace }: TemporalConfig, source: string | null): string {
  return printable(`on ${address}, namespace ${namespace} (${sourceText(source)})`);
}

export function sourceText(source: string | null): string {
  return source === null ? 'the default address: no server is named' : `from ${source}`;
}

/** Throws if another server now listens at the address that the stack's folder names. */
export async function refuseForeignServer(
  client: Client,
  stack: StackAddresses,
  folder: string,
): Promise<void> {
  const named = await stackOfServer(client);
  if (named?.id === stack.id) return;
  const whose = named ? `that of another stack, ${named.place}` : 'not started by a stack';
  throw new Error(
    `the Temporal server at ${stack.temporal} is ${whose}, so it is not the server of the stack in ${folder}: ` +
      'start the stack again with `longhaul up`, or name the server you mean with --temporal-address',
  );
}

/** Statuses of a workflow that has not ended. */
export const openStatuses: readonly string[] = ['RUNNING', 'PAUSED', 'CONTINUED_AS_NEW'];

export type RunHandle = WorkflowHandle<typeof trainingRun>;

export function runHandle(client: Client, run: string): RunHandle {
  return client.workflow.getHandle<typeof trainingRun>(workflowIdOf(run));
}

/** Accepts a run's name, the id of any of its timelines, or its workflow id: one workflow drives the newest timeline of a name. */
export function workflowIdOf(run: string): string {
  return nameOfRun(run.startsWith('train/') ? run : `train/${run}`);
}

/**
 * The named store, the running stack's, or the one in this folder. Null if no store is named and none is found. Null, with a message, if
 * the folder's store may not be read: the command still works, but knows less.
 */
export async function storeOfCommand(
  command: Command,
  flags: TemporalFlags & { store: string },
): Promise<ObjectStore | null> {
  if (command.getOptionValueSource('store') !== 'default') return openExistingStore(flags.store);
  const { stack, folder } = temporalConfig(flags);
  if (stack) return openExistingStore(stack.store);
  const store = folder === defaultStackFolder ? flags.store : storeOfFolder(folder);
  const problem = await storeFolderProblem(store);
  if (problem === null) return openExistingStore(store);
  if (problem !== 'ENOENT') console.error(unreadableStore(store, problem));
  return null;
}
