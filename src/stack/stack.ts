// The embedded stack: the same processes as anywhere else, on one machine, started, watched and stopped by this one.
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
import { ClaimedPorts } from './claimed-ports.js';
import { holderOf, lockFolder } from '../workers/process/folder-lock.js';
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
import { openConnection } from '../workers/temporal/temporal-connection.js';

export interface StackOptions {
  folder: string;
  /** Null or absent: the ports of the last start, else 7233 and 8233; if those are taken, the next free ones. */
  temporalPort?: number | null;
  uiPort?: number | null;
  /** `dir:…` or `s3://…`; by default a directory in the folder. */
  store?: string;
  engine: string;
  /** Node workers, each with an engine and a folder of its own: `local`, `local-2` and so on; by default one. */
  nodes?: number;
  /** Runs that each of them may serve at once; by default one. */
  places?: number;
  /** `HOST:PORT` where the follower serves the runs' figures; default: the environment's, or none. */
  metricsAddress?: string;
  log(message: string): void;
  /** Called when a process cannot be kept alive. */
  gaveUp(error: Error): void;
  /** Compiled main files; tests pass workers of their own. */
  scripts?: Partial<StackScripts>;
}

/** In `stack.json` of the folder, for the other commands. */
export interface StackAddresses {
  temporal: string;
  ui: string;
  environments: string;
  store: string;
  pid: number;
  /** The stack's own name, which its Temporal server knows too; absent in a stack that an earlier version started. */
  id?: string;
}

export interface Stack {
  addresses: StackAddresses;
  processes: readonly SupervisedProcess[];
  /** Workers first, the Temporal server last. */
  stop(): Promise<void>;
}

const neededDiskBytes = 512 * 1024 * 1024;

/** Resolves when everything serves. A failed start stops what it had started. */
export async function startStack(options: StackOptions): Promise<Stack> {
  const folder = resolve(options.folder);
  refuseFile(folder);
  const lock = lockFolder(folder, `longhaul up in ${folder}`);
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
      options.log(`ended ${name} (process ${pid}), which an earlier stack had left`);
    }
    refuseSecondServer(join(folder, databaseName));
    return await startProcesses(folder, options, registry, started, ports, release);
  } catch (error) {
    await stopAll(started);
    release();
    throw error;
  }
}

/** The running stack of a folder, or null. */
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
  await Promise.all(servingPlans(stack).map((plan) => launch(plan)));
  launch(followerPlan(stack), {
    gaveUp: (error) =>
      options.log(`${error.message}\nRuns go on; nobody is notified of them until the next start.`),
  }).catch((error: Error) => options.log(error.message));
  const addresses: StackAddresses = {
    ...{ temporal: temporalAddress(stack), ui: uiAddress(stack), environments: environmentsAddress(stack) },
    ...{ store, pid: process.pid, id },
  };
  writeJson(join(folder, 'stack.json'), addresses);
  return {
    addresses,
    processes: started,
    stop: async () => {
      await stopAll(started);
      await connection.close();
      release();
    },
  };
}

/** Those of the last start, as far as they are free. */
async function choosePorts(
  { temporalPort, uiPort }: StackOptions,
  before: StackAddresses | null,
  ports: ClaimedPorts,
): Promise<Pick<PlannedStack, 'temporalPort' | 'uiPort' | 'environmentPort'>> {
  const choose = (what: string, given: number | null | undefined, preferred: number): Promise<number> =>
    typeof given === 'number' ? ports.exactly(what, given) : ports.near(what, preferred);
  const environments = portOf(before?.environments);
  return {
    temporalPort: await choose('Temporal server', temporalPort, portOf(before?.temporal) ?? 7233),
    uiPort: await choose('Temporal UI', uiPort, portOf(before?.ui) ?? 8233),
    environmentPort: await (environments === null
      ? ports.any()
      : ports.near('environment server', environments)),
  };
}

/** Temporal goes last: the workers hand their activities back to it. */
async function stopAll(processes: readonly SupervisedProcess[]): Promise<void> {
  await Promise.all(processes.filter((one) => one.name !== 'temporal').map((one) => one.stop()));
  await Promise.all(processes.filter((one) => one.name === 'temporal').map((one) => one.stop()));
}

function refuseFile(path: string): void {
  let isFile: boolean;
  try {
    isFile = !statSync(path).isDirectory();
  } catch {
    // It does not exist yet, or cannot be read: creating it reports why.
    return;
  }
  if (isFile)
    throw new Error(`${path} is a file, and a stack is kept in a folder: name another one with --folder`);
}

function checkDisk(folder: string): void {
  const { bavail, bsize } = statfsSync(folder);
  const free = bavail * bsize;
  if (free >= neededDiskBytes) return;
  const mib = (bytes: number): number => Math.round(bytes / 1024 / 1024);
  throw new Error(
    `only ${mib(free)} MiB are free on the disk of ${folder}, and a run needs at least ${mib(neededDiskBytes)} MiB; ` +
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

/** One token for the life of the folder, so that sessions outlive a restart. */
function gradingToken(folder: string): string {
  const path = join(folder, 'grading-token');
  if (!existsSync(path)) writeFileSync(path, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
  return path;
}

function readAddresses(folder: string): StackAddresses | null {
  try {
    return JSON.parse(readFileSync(join(folder, 'stack.json'), 'utf8')) as StackAddresses;
  } catch {
    return null;
  }
}

function portOf(address: string | undefined): number | null {
  const port = Number(address?.split(':').at(-1));
  return Number.isInteger(port) && port > 0 ? port : null;
}

function writeJson(path: string, value: unknown): void {
  writeFileSync(`${path}.draft`, `${JSON.stringify(value, null, 1)}\n`);
  renameSync(`${path}.draft`, path);
}
