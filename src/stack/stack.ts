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
import { fileURLToPath } from 'node:url';
import type { Connection } from '@temporalio/client';
import { ClaimedPorts } from './claimed-ports.js';
import { servingFile } from '../workers/follower/follower-config.js';
import { placesForNode } from '../workers/node/server-capacity.js';
import { holderOf, lockFolder } from '../workers/process/folder-lock.js';
import { engineQueue, orchestratorQueue } from '../workflows/messages.js';
import { environmentOf } from './process-environments.js';
import { ProcessRegistry } from './process-registry.js';
import { nameServer, newStackId, type StackIdentity, stackIdentity } from './stack-identity.js';
import { markedProcesses, refuseSecondServer, stackMark } from './stack-leftovers.js';
import { type ProcessPlan, SupervisedProcess } from './supervised-process.js';
import { findTemporalBinary } from './temporal-binary.js';
import { temporalServerArguments } from '../workers/temporal/temporal-server.js';
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

export interface StackScripts {
  orchestrator: string;
  node: string;
  environments: string;
  follower: string;
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

/** temporal.api.enums.v1.TaskQueueType */
const activityTasks = 2;
const databaseName = 'temporal.db';
/** A stack of one node may get another one. */
const fewestNodes = 2;
/** The machine stays: data that is not in the store by then is on its disk. */
const nodeGraceSeconds = '8';
const neededDiskBytes = 512 * 1024 * 1024;
const script = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

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
  const choose = (what: string, given: number | null | undefined, preferred: number): Promise<number> =>
    typeof given === 'number' ? ports.exactly(what, given) : ports.near(what, preferred);
  const temporalPort = await choose(
    'Temporal server',
    options.temporalPort,
    portOf(before?.temporal) ?? 7233,
  );
  const uiPort = await choose('Temporal UI', options.uiPort, portOf(before?.ui) ?? 8233);
  const environmentsBefore = portOf(before?.environments);
  const environmentPort = await (environmentsBefore === null
    ? ports.any()
    : ports.near('environment server', environmentsBefore));
  const store = options.store ?? `dir:${join(folder, 'store')}`;
  const addresses = {
    temporal: `127.0.0.1:${temporalPort}`,
    ui: `http://127.0.0.1:${uiPort}`,
    environments: `http://127.0.0.1:${environmentPort}`,
    store,
    pid: process.pid,
    id: before?.id ?? newStackId(),
  };
  const identity = stackIdentity(addresses.id, folder);
  const tokenFile = gradingToken(folder);
  const connection = openConnection({ address: addresses.temporal });
  const events = { registry, log: (message: string) => options.log(message), gaveUp: options.gaveUp };
  const launch = async (
    plan: Omit<ProcessPlan, 'logFile' | 'stopGraceMs'>,
    stopGraceMs: number,
  ): Promise<void> => {
    const one = new SupervisedProcess(
      {
        ...plan,
        env: { ...plan.env, ...stackMark(plan.name, folder) },
        stopGraceMs,
        logFile: join(logs, `${plan.name}.log`),
      },
      events,
    );
    started.push(one);
    await one.start();
  };
  const node = (path: string, args: string[]) => ({ command: process.execPath, args: [path, ...args] });
  const shared = [
    ...['--temporal-address', addresses.temporal, '--no-temporal-profile', '--namespace', 'default'],
    ...['--store', store],
  ];
  const nodes = options.nodes ?? 1;
  const orchestratorFolder = join(folder, 'orchestrator');
  const followerFolder = join(folder, 'follower');
  // Only one process can serve an address: the follower, which has the runs' figures.
  const noMetrics = { LONGHAUL_METRICS_ADDRESS: '' };

  await Promise.all([
    launch(
      {
        name: 'temporal',
        command: findTemporalBinary(),
        args: temporalServerArguments({
          port: temporalPort,
          uiPort,
          databaseFile: join(folder, databaseName),
        }),
        env: environmentOf('temporal'),
        healthy: () => temporalServes(connection, identity),
        startDeadlineMs: 60_000,
      },
      10_000,
    ),
    launch(
      {
        name: 'environments',
        ...node(options.scripts?.environments ?? script('../environments/server/main.js'), [
          ...['--port', String(environmentPort)],
          '--max-sessions',
          String(placesForNode * Math.max(fewestNodes, nodes)),
        ]),
        // Given by the environment, so that a restarted server knows the same token.
        env: {
          ...environmentOf('environments'),
          LONGHAUL_GRADING_TOKEN: readFileSync(tokenFile, 'utf8').trim(),
        },
        healthy: () => answers(`${addresses.environments}/health`),
        startDeadlineMs: 30_000,
      },
      5_000,
    ),
    // The workers wait for the Temporal server on their own.
    launch(
      {
        name: 'orchestrator',
        ...node(options.scripts?.orchestrator ?? script('../workers/orchestrator-main.js'), [
          ...shared,
          '--folder',
          orchestratorFolder,
        ]),
        env: { ...environmentOf('orchestrator'), ...noMetrics },
        healthy: (pid) => polls(connection, orchestratorQueue, pid),
        startDeadlineMs: 60_000,
      },
      15_000,
    ),
    ...Array.from({ length: nodes }, (_, index) => (index === 0 ? '' : `-${index + 1}`)).map((suffix) =>
      launch(
        {
          name: `node${suffix}`,
          ...node(options.scripts?.node ?? script('../workers/node-main.js'), [
            ...[...shared, '--folder', join(folder, `node${suffix}`), '--node', `local${suffix}`],
            ...[
              '--engine',
              options.engine,
              '--places',
              String(options.places ?? 1),
              '--grace',
              nodeGraceSeconds,
            ],
            ...['--environments', addresses.environments, '--grading-token-file', tokenFile],
          ]),
          env: { ...environmentOf('node'), ...noMetrics },
          healthy: (pid) => polls(connection, engineQueue(`local${suffix}`), pid),
          startDeadlineMs: 60_000,
        },
        15_000,
      ),
    ),
  ]);
  // Not awaited: a stack goes on without it.
  const follower = new SupervisedProcess(
    {
      name: 'follower',
      ...node(options.scripts?.follower ?? script('../workers/follower-main.js'), [
        ...[...shared, '--folder', followerFolder, '--temporal-ui', addresses.ui],
        ...(options.metricsAddress ? ['--metrics-address', options.metricsAddress] : []),
      ]),
      env: { ...environmentOf('follower'), ...stackMark('follower', folder) },
      healthy: (pid) => Promise.resolve(servesFrom(followerFolder) === pid),
      startDeadlineMs: 120_000,
      stopGraceMs: 15_000,
      logFile: join(logs, 'follower.log'),
    },
    {
      ...events,
      gaveUp: (error) =>
        options.log(`${error.message}\nRuns go on; nobody is told of them until the next start.`),
    },
  );
  started.push(follower);
  follower.start().catch((error: Error) => options.log(error.message));
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

/** Temporal goes last: the workers hand their activities back to it. */
async function stopAll(processes: readonly SupervisedProcess[]): Promise<void> {
  await Promise.all(processes.filter((one) => one.name !== 'temporal').map((one) => one.stop()));
  await Promise.all(processes.filter((one) => one.name === 'temporal').map((one) => one.stop()));
}

async function temporalServes(connection: Connection, identity: StackIdentity): Promise<boolean> {
  await connection.withDeadline(Date.now() + 1_000, () =>
    connection.workflowService.describeNamespace({ namespace: 'default' }),
  );
  await nameServer(connection, identity);
  return true;
}

/** True if this very process polls the queue: pollers of a dead one stay listed for minutes, so the pid in the identity counts. */
async function polls(connection: Connection, queue: string, pid: number): Promise<boolean> {
  const { pollers } = await connection.withDeadline(Date.now() + 2_000, () =>
    connection.workflowService.describeTaskQueue({
      namespace: 'default',
      taskQueue: { name: queue },
      taskQueueType: activityTasks,
    }),
  );
  return (pollers ?? []).some((poller) => poller.identity?.endsWith(` ${pid}`));
}

/** Pid of the follower that has looked for runs in this folder; null if none has. */
function servesFrom(folder: string): number | null {
  try {
    return (JSON.parse(readFileSync(join(folder, servingFile), 'utf8')) as { pid: number }).pid;
  } catch {
    return null;
  }
}

async function answers(url: string): Promise<boolean> {
  await fetch(url, { signal: AbortSignal.timeout(1_000) });
  return true;
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
