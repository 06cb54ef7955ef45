// Says how each process of a stack is started, and how the supervisor sees that it serves.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Connection } from '@temporalio/client';
import { httpRequest } from '../base/http-request.js';
import { servingFile } from '../workers/follower/follower-config.js';
import { temporalServerArguments } from '../workers/temporal/temporal-server.js';
import { engineQueue, orchestratorQueue } from '../workflows/messages.js';
import { environmentOf } from './process-environments.js';
import { nameServer, type StackIdentity } from './stack-identity.js';
import type { ProcessPlan } from './supervised-process.js';
import { findTemporalBinary } from './temporal-binary.js';

export interface StackScripts {
  orchestrator: string;
  node: string;
  /**
   * Command and arguments of an environment server, which takes its port from `LONGHAUL_ENVIRONMENT_PORT`, its number of sessions from
   * `MAX_CONCURRENT_ENVS`, and the grading token from `LONGHAUL_GRADING_TOKEN`. By default the stack has none.
   */
  environments: readonly string[];
  follower: string;
}

/** Settings from which the plans of one stack are made. */
export interface PlannedStack {
  folder: string;
  temporalPort: number;
  uiPort: number;
  environmentPort: number;
  /** `dir:…` or `s3://…` */
  store: string;
  engine: string;
  /** Number of node workers. */
  nodes: number;
  /** Number of runs that each node may serve at once. */
  places: number;
  /** `HOST:PORT` where the follower serves the runs' metrics; undefined: the address in the environment, or no metrics. */
  metricsAddress: string | undefined;
  scripts: Partial<StackScripts>;
  identity: StackIdentity;
  /** File with the grading token of the stack's environment server. */
  tokenFile: string;
  connection: Connection;
}

/** A process plan without the log file, which the stack adds. */
export type RolePlan = Omit<ProcessPlan, 'logFile'>;

export const databaseName = 'temporal.db';
/** Sessions of the environment server for each node: those that the node may open at once, and some for other processes. */
const sessionsPerNode = 512;
/** The environment server has room for at least this many nodes: another node may join a stack of one node. */
const fewestNodes = 2;
/** Seconds. A short grace is enough: the machine stays, so data that is not uploaded in time is still on its disk. */
const nodeGraceSeconds = '8';
/** temporal.api.enums.v1.TaskQueueType */
const activityTasks = 2;
/** For processes other than the follower: only one process can serve the address, and the follower has the runs' metrics. */
const noMetrics = { LONGHAUL_METRICS_ADDRESS: '' };

const script = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const node = (path: string, args: string[]) => ({ command: process.execPath, args: [path, ...args] });

export const temporalAddress = ({ temporalPort }: Pick<PlannedStack, 'temporalPort'>): string =>
  `127.0.0.1:${temporalPort}`;
export const uiAddress = ({ uiPort }: Pick<PlannedStack, 'uiPort'>): string => `http://127.0.0.1:${uiPort}`;
/** Null if the stack has no environment server. */
export const environmentsAddress = ({
  environmentPort,
  scripts,
}: Pick<PlannedStack, 'environmentPort' | 'scripts'>): string | null =>
  scripts.environments ? `http://127.0.0.1:${environmentPort}` : null;

/** Plans of all processes without which a stack does not serve. The workers wait for the Temporal server on their own. */
export function servingPlans(stack: PlannedStack): RolePlan[] {
  return [temporalPlan(stack), ...environmentPlans(stack), orchestratorPlan(stack), ...nodePlans(stack)];
}

function temporalPlan({ folder, temporalPort, uiPort, connection, identity }: PlannedStack): RolePlan {
  return {
    name: 'temporal',
    command: findTemporalBinary(),
    args: temporalServerArguments({ port: temporalPort, uiPort, databaseFile: join(folder, databaseName) }),
    env: environmentOf('temporal'),
    healthy: () => temporalServes(connection, identity),
    startDeadlineMs: 60_000,
    stopGraceMs: 10_000,
  };
}

function environmentPlans(stack: PlannedStack): RolePlan[] {
  const [command, ...args] = stack.scripts.environments ?? [];
  if (command === undefined) return [];
  return [
    {
      name: 'environments',
      command,
      args,
      typed: [command, ...args].join(' ').replace(/^\/bin\/sh -c exec /, ''),
      // The token comes in the environment, so that a restarted server has the same token.
      env: {
        ...environmentOf('environments'),
        LONGHAUL_GRADING_TOKEN: readFileSync(stack.tokenFile, 'utf8').trim(),
        LONGHAUL_ENVIRONMENT_PORT: String(stack.environmentPort),
        MAX_CONCURRENT_ENVS: String(sessionsPerNode * Math.max(fewestNodes, stack.nodes)),
      },
      healthy: () => answers(`${environmentsAddress(stack)}/health`),
      startDeadlineMs: 30_000,
      stopGraceMs: 5_000,
    },
  ];
}

function orchestratorPlan(stack: PlannedStack): RolePlan {
  const { folder, scripts, connection } = stack;
  return {
    name: 'orchestrator',
    ...node(scripts.orchestrator ?? script('../workers/orchestrator-main.js'), [
      ...[...workerArguments(stack), '--folder', join(folder, 'orchestrator')],
    ]),
    env: { ...environmentOf('orchestrator'), ...noMetrics },
    healthy: (pid) => polls(connection, orchestratorQueue, pid),
    startDeadlineMs: 60_000,
    stopGraceMs: 15_000,
  };
}

/** The first node is called `local`, the second `local-2`, and so on. */
function nodePlans(stack: PlannedStack): RolePlan[] {
  const { folder, scripts, engine, places, tokenFile, connection } = stack;
  const environments = environmentsAddress(stack);
  return Array.from({ length: stack.nodes }, (_, index) => (index === 0 ? '' : `-${index + 1}`)).map(
    (suffix, index) => ({
      name: `node${suffix}`,
      ...node(scripts.node ?? script('../workers/node-main.js'), [
        ...[...workerArguments(stack), '--folder', join(folder, `node${suffix}`), '--node', `local${suffix}`],
        ...['--engine', engine, '--places', String(places), '--grace', nodeGraceSeconds],
        ...(environments === null ? [] : ['--environments', environments, '--grading-token-file', tokenFile]),
      ]),
      env: { ...environmentOf('node'), ...gpuOfNode(index), ...noMetrics },
      healthy: (pid) => polls(connection, engineQueue(`local${suffix}`), pid),
      // An engine may take 180 s, since a GPU's driver may have to compile its kernels.
      startDeadlineMs: 240_000,
      stopGraceMs: 15_000,
    }),
  );
}

/** Plan of the follower. The stack does not wait for the follower: it serves without one. */
export function followerPlan(stack: PlannedStack): RolePlan {
  const { scripts, metricsAddress } = stack;
  const folder = join(stack.folder, 'follower');
  return {
    name: 'follower',
    ...node(scripts.follower ?? script('../workers/follower-main.js'), [
      ...[...workerArguments(stack), '--folder', folder, '--temporal-ui', uiAddress(stack)],
      ...(metricsAddress ? ['--metrics-address', metricsAddress] : []),
    ]),
    env: environmentOf('follower'),
    healthy: (pid) => Promise.resolve(servesFrom(folder) === pid),
    startDeadlineMs: 120_000,
    stopGraceMs: 15_000,
  };
}

function workerArguments(stack: PlannedStack): string[] {
  return [
    ...['--temporal-address', temporalAddress(stack), '--no-temporal-profile', '--namespace', 'default'],
    ...['--store', stack.store],
  ];
}

async function temporalServes(connection: Connection, identity: StackIdentity): Promise<boolean> {
  await connection.withDeadline(Date.now() + 1_000, () =>
    connection.workflowService.describeNamespace({ namespace: 'default' }),
  );
  await nameServer(connection, identity);
  return true;
}

/**
 * Whether the process `pid` polls the queue. Temporal lists pollers of a dead process for minutes, so compare the pid in their identity.
 */
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

/** Pid of the follower that last looked for runs with this folder; null if no follower has. */
function servesFrom(folder: string): number | null {
  try {
    return (JSON.parse(readFileSync(join(folder, servingFile), 'utf8')) as { pid: number }).pid;
  } catch {
    return null;
  }
}

async function answers(url: string): Promise<boolean> {
  await httpRequest(url, { timeoutMs: 1_000, redirect: 'follow' });
  return true;
}

/** The variables of a node's process that choose its GPU, because an engine uses the first one that it sees; empty if the machine has fewer than two GPUs. `index`: the node's number; `folder`: where
 * NVIDIA's driver lists the GPUs. */
export function gpuOfNode(
  index: number,
  env: NodeJS.ProcessEnv = process.env,
  folder = '/proc/driver/nvidia/gpus',
): { CUDA_VISIBLE_DEVICES?: string } {
  const named = env['CUDA_VISIBLE_DEVICES']?.split(',').filter(Boolean);
  const visible = named ?? listed(folder).map((_, place) => String(place));
  const own = visible.length > 1 ? visible[index % visible.length] : undefined;
  return own === undefined ? {} : { CUDA_VISIBLE_DEVICES: own };
}

function listed(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
