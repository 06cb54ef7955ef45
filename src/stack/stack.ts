// The embedded stack: this process starts, watches and stops all of Longhaul's processes on one machine.
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join, resolve } from 'node:path';
import { abortable } from '../base/abortable.js';
import { ClaimedPorts } from './claimed-ports.js';
import { FolderLocked, type FolderLock, holderOf, lockFolder } from '../workers/process/folder-lock.js';
import { watchDisk } from './disk-space.js';
import {
  databaseName,
  environmentsAddress,
  followerPlan,
  type PlannedStack,
  type RolePlan,
  servingPlans,
  type StackScripts,
  temporalAddress,
  uiAddress,
} from './process-plans.js';
import { ProcessRegistry } from './process-registry.js';
import { newStackId, stackIdentity } from './stack-identity.js';
import { markedProcesses, refuseSecondServer, stackMark } from './stack-leftovers.js';
import { type ProcessEvents, SupervisedProcess } from './supervised-process.js';
import { refuseDamagedDatabase } from './temporal-database.js';
import { openConnection } from '../workers/temporal/temporal-connection.js';

interface StackOptions {
  folder: string;
  /**
   * Port of the Temporal server. By default the last start's port or 7233; if it is taken, the next free port. `uiPort`: likewise, with
   * 8233.
   */
  temporalPort?: number | null;
  uiPort?: number | null;
  /** `dir:…` or `s3://…`; by default a directory in the folder. */
  store?: string;
  engine: string;
  /** Number of node workers, each with its own engine and folder: `local`, `local-2` and so on; by default one. */
  nodes?: number;
  /** Number of runs that each node may serve at once; by default one. */
  places?: number;
  /** `HOST:PORT` where the follower serves the runs' metrics; by default the address in the environment, or no metrics. */
  metricsAddress?: string;
  log(message: string): void;
  /** Called when a process cannot be kept alive. */
  gaveUp(error: Error): void;
  /** When this signal aborts, the start ends: the processes are stopped, and `startStack` throws the signal's reason. */
  signal?: AbortSignal;
  /** Main files to start instead of the compiled ones; tests pass their own workers. */
  scripts?: Partial<StackScripts>;
}

/** Where the presets look for the example's server. */
export const usualEnvironmentPort = 8030;

/** Content of `stack.json` in the folder, by which other commands find the stack. */
export interface StackAddresses {
  temporal: string;
  ui: string;
  /** Null if the stack has no environment server. */
  environments: string | null;
  store: string;
  pid: number;
  /** The stack's name, which its Temporal server holds, too. */
  id: string;
}

export interface Stack {
  addresses: StackAddresses;
  processes: readonly SupervisedProcess[];
  /** Stops all processes, workers first, the Temporal server last. */
  stop(): Promise<void>;
}

const neededDiskBytes = 512 * 1024 * 1024;

/** Resolves when all processes serve. If the start fails, stops the processes that were started. */
export async function startStack(options: StackOptions): Promise<Stack> {
  const folder = resolve(options.folder);
  refuseFile(folder);
  const lock = lockStack(folder);
  const ports = new ClaimedPorts((message) => options.log(message));
  const release = (): void => {
    ports.release();
    lock.release();
  };
  const started: SupervisedProcess[] = [];
  try {
    checkDisk(folder);
    checkEngine(options.engine);
    const registry = new ProcessRegistry(join(folder, 'processes.json'), options);
    for (const { name, pid } of await registry.endLeftovers(5_000, markedProcesses(folder))) {
      options.log(`ended ${name} (process ${pid}) of an earlier stack`);
    }
    options.signal?.throwIfAborted();
    refuseSecondServer(join(folder, databaseName));
    refuseDamagedDatabase(join(folder, databaseName));
    return await startProcesses(folder, options, registry, started, ports, release);
  } catch (error) {
    await stopAll(started);
    release();
    throw error;
  }
}

function lockStack(folder: string): FolderLock {
  try {
    return lockFolder(folder, `longhaul up in ${folder}`);
  } catch (error) {
    if (!(error instanceof FolderLocked) || error.holder === null) throw error;
    const { pid, address } = error.holder;
    const ui = readAddresses(folder)?.ui;
    throw new Error(
      `${folder} is in use by process ${pid} (${address}).\n` +
        `  Use that stack: longhaul runs --folder ${folder}, longhaul train SPEC --folder ${folder}${ui ? `, or its Temporal UI ${ui}` : ''}\n` +
        `  Or stop it: Ctrl-C in its terminal, or kill ${pid}\n` +
        '  Or choose another folder with --folder',
      { cause: error },
    );
  }
}

/** Addresses of the running stack of a folder; null if none runs. */
export function runningStack(folder: string): StackAddresses | null {
  return holderOf(folder) ? readAddresses(folder) : null;
}

async function startProcesses(
  folder: string,
  options: StackOptions,
  registry: ProcessRegistry,
  started: SupervisedProcess[],
  ports: ClaimedPorts,
  release: () => void,
): Promise<Stack> {
  const logs = join(folder, 'logs');
  mkdirSync(logs, { recursive: true });
  const before = readAddresses(folder);
  const chosen = await choosePorts(options, before, ports);
  options.signal?.throwIfAborted();
  const id = before?.id ?? newStackId();
  const store = options.store ?? `dir:${join(folder, 'store')}`;
  const connection = openConnection({ address: temporalAddress(chosen) });
  const stack: PlannedStack = {
    ...chosen,
    ...{ folder, store, connection, engine: options.engine, metricsAddress: options.metricsAddress },
    ...{ nodes: options.nodes ?? 1, places: options.places ?? 1, scripts: options.scripts ?? {} },
    ...{ identity: stackIdentity(id, folder), tokenFile: gradingToken(folder) },
  };
  const events = { registry, log: (message: string) => options.log(message), gaveUp: options.gaveUp };
  const launch = async (plan: RolePlan, more: Partial<ProcessEvents> = {}): Promise<void> => {
    const env = { ...plan.env, ...stackMark(plan.name, folder) };
    const logFile = join(logs, `${plan.name}.log`);
    const one = new SupervisedProcess({ ...plan, env, logFile }, { ...events, ...more });
    started.push(one);
    await one.start();
  };
  const serving = Promise.all(servingPlans(stack).map((plan) => launch(plan)));
  await (options.signal ? abortable(serving, options.signal) : serving);
  launch(followerPlan(stack), {
    gaveUp: (error) =>
      options.log(
        `${error.message}\nRuns continue, but without a follower: metrics and Slack messages wait until the next start.`,
      ),
  }).catch((error: Error) => options.log(error.message));
  const addresses: StackAddresses = {
    ...{ temporal: temporalAddress(stack), ui: uiAddress(stack), environments: environmentsAddress(stack) },
    ...{ store, pid: process.pid, id },
  };
  writeJson(join(folder, 'stack.json'), addresses);
  const endWatch = watchDisk(folder, (message) => options.log(message));
  return {
    addresses,
    processes: started,
    stop: async () => {
      endWatch();
      await stopAll(started);
      await connection.close();
      release();
    },
  };
}

/** Chooses the ports of the last start; only the environment server must have the same. */
export async function choosePorts(
  { temporalPort, uiPort, scripts }: Pick<StackOptions, 'temporalPort' | 'uiPort' | 'scripts'>,
  before: Pick<StackAddresses, 'temporal' | 'ui' | 'environments'> | null,
  ports: ClaimedPorts,
): Promise<Pick<PlannedStack, 'temporalPort' | 'uiPort' | 'environmentPort'>> {
  const choose = (what: string, given: number | null | undefined, preferred: number): Promise<number> =>
    typeof given === 'number' ? ports.exactly(what, given) : ports.near(what, preferred);
  const environments = 'environment server';
  const last = portOf(before?.environments);
  return {
    temporalPort: await choose('Temporal server', temporalPort, portOf(before?.temporal) ?? 7233),
    uiPort: await choose('Temporal UI', uiPort, portOf(before?.ui) ?? 8233),
    environmentPort: !scripts?.environments
      ? 0
      : last === null
        ? await ports.near(environments, usualEnvironmentPort)
        : await ports.again(environments, last),
  };
}

/** Stops Temporal last: ending workers return their activities to it. */
async function stopAll(processes: readonly SupervisedProcess[]): Promise<void> {
  await Promise.all(processes.filter((one) => one.name !== 'temporal').map((one) => one.stop()));
  await Promise.all(processes.filter((one) => one.name === 'temporal').map((one) => one.stop()));
}

function refuseFile(path: string): void {
  let isFile: boolean;
  try {
    isFile = !statSync(path).isDirectory();
  } catch {
    // The path does not exist yet, or cannot be read; in that case creating the folder will report why.
    return;
  }
  if (isFile) throw new Error(`${path} is a file, but a stack needs a folder: name one with --folder`);
}

function checkDisk(folder: string): void {
  const { bavail, bsize } = statfsSync(folder);
  const free = bavail * bsize;
  if (free >= neededDiskBytes) return;
  const mib = (bytes: number): number => Math.round(bytes / 1024 / 1024);
  throw new Error(
    `only ${mib(free)} MiB are free on the disk of ${folder}, but a run needs at least ${mib(neededDiskBytes)} MiB; ` +
      'make room, or choose another folder',
  );
}

function checkEngine(path: string): void {
  try {
    accessSync(path, constants.X_OK);
  } catch {
    throw new Error(
      `there is no engine at ${path}; build it with \`npm run build:native\`, or name one with LONGHAUL_ENGINE`,
    );
  }
}

/** File with the grading token. The folder keeps one token for ever, so that sessions survive a restart. */
function gradingToken(folder: string): string {
  const path = join(folder, 'grading-token');
  if (!existsSync(path)) writeFileSync(path, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
  return path;
}

/** The grading token of a folder's stack, which has run. */
export function tokenOfStack(folder: string): string {
  return readFileSync(gradingToken(folder), 'utf8').trim();
}

function readAddresses(folder: string): StackAddresses | null {
  try {
    return JSON.parse(readFileSync(join(folder, 'stack.json'), 'utf8')) as StackAddresses;
  } catch {
    return null;
  }
}

function portOf(address: string | null | undefined): number | null {
  const port = Number(address?.split(':').at(-1));
  return Number.isInteger(port) && port > 0 ? port : null;
}

function writeJson(path: string, value: unknown): void {
  writeFileSync(`${path}.draft`, `${JSON.stringify(value, null, 1)}\n`);
  renameSync(`${path}.draft`, path);
}
