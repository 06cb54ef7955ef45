// How each process of a stack is started, and how the supervisor knows that it serves.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Connection } from '@temporalio/client';
import { servingFile } from '../workers/follower/follower-config.js';
import { placesForNode } from '../workers/node/server-capacity.js';
import { temporalServerArguments } from '../workers/temporal/temporal-server.js';
import { engineQueue, orchestratorQueue } from '../workflows/messages.js';
import { environmentOf } from './process-environments.js';
import { nameServer, type StackIdentity } from './stack-identity.js';
import type { ProcessPlan } from './supervised-process.js';
import { findTemporalBinary } from './temporal-binary.js';

export interface StackScripts {
  orchestrator: string;
  node: string;
  environments: string;
  follower: string;
}

/** What the plans of one stack are made from. */
export interface PlannedStack {
  folder: string;
  temporalPort: number;
  uiPort: number;
  environmentPort: number;
  /** `dir:…` or `s3://…` */
  store: string;
  engine: string;
  /** Node workers. */
  nodes: number;
  /** Runs that each of them may serve at once. */
  places: number;
  /** `HOST:PORT` where the follower serves the runs' figures; undefined: that of the environment, or none. */
  metricsAddress: string | undefined;
  scripts: Partial<StackScripts>;
  identity: StackIdentity;
  /** File of the token that the stack's environment server grades by. */
  tokenFile: string;
  connection: Connection;
}

/** A plan without what all processes of a stack have alike. */
export type RolePlan = Omit<ProcessPlan, 'logFile'>;

export const databaseName = 'temporal.db';
/** A stack of one node may get another one. */
const fewestNodes = 2;
/** The machine stays: data that is not in the store by then is on its disk. */
const nodeGraceSeconds = '8';
/** temporal.api.enums.v1.TaskQueueType */
const activityTasks = 2;
/** Only one process can serve an address: the follower, which has the runs' figures. */
const noMetrics = { LONGHAUL_METRICS_ADDRESS: '' };

const script = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const node = (path: string, args: string[]) => ({ command: process.execPath, args: [path, ...args] });

export const temporalAddress = ({ temporalPort }: Pick<PlannedStack, 'temporalPort'>): string =>
  `127.0.0.1:${temporalPort}`;
export const uiAddress = ({ uiPort }: Pick<PlannedStack, 'uiPort'>): string => `http://127.0.0.1:${uiPort}`;
export const environmentsAddress = ({ environmentPort }: Pick<PlannedStack, 'environmentPort'>): string =>
  `http://127.0.0.1:${environmentPort}`;

/** The processes that a stack needs to serve. The workers wait for the Temporal server on their own. */
export function servingPlans(stack: PlannedStack): RolePlan[] {
  return [temporalPlan(stack), environmentsPlan(stack), orchestratorPlan(stack), ...nodePlans(stack)];
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

function environmentsPlan(stack: PlannedStack): RolePlan {
  const { scripts, environmentPort, nodes, tokenFile } = stack;
  return {
    name: 'environments',
    ...node(scripts.environments ?? script('../environments/server/main.js'), [
      ...['--port', String(environmentPort)],
      ...['--max-sessions', String(placesForNode * Math.max(fewestNodes, nodes))],
    ]),
    // Given by the environment, so that a restarted server knows the same token.
    env: {
      ...environmentOf('environments'),
      LONGHAUL_GRADING_TOKEN: readFileSync(tokenFile, 'utf8').trim(),
    },
    healthy: () => answers(`${environmentsAddress(stack)}/health`),
    startDeadlineMs: 30_000,
    stopGraceMs: 5_000,
  };
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

/** The first is `local`, the second `local-2`, and so on. */
function nodePlans(stack: PlannedStack): RolePlan[] {
  const { folder, scripts, engine, places, tokenFile, connection } = stack;
  return Array.from({ length: stack.nodes }, (_, index) => (index === 0 ? '' : `-${index + 1}`)).map(
    (suffix) => ({
      name: `node${suffix}`,
      ...node(scripts.node ?? script('../workers/node-main.js'), [
        ...[...workerArguments(stack), '--folder', join(folder, `node${suffix}`), '--node', `local${suffix}`],
        ...['--engine', engine, '--places', String(places), '--grace', nodeGraceSeconds],
        ...['--environments', environmentsAddress(stack), '--grading-token-file', tokenFile],
      ]),
      env: { ...environmentOf('node'), ...noMetrics },
      healthy: (pid) => polls(connection, engineQueue(`local${suffix}`), pid),
      startDeadlineMs: 60_000,
      stopGraceMs: 15_000,
    }),
  );
}

/** Not awaited: a stack goes on without it. */
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

/** True when this very process polls the queue: pollers of a dead one stay listed for minutes, so the pid in the identity counts. */
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

/** Pid of the follower that has looked for runs in this folder; null where none has. */
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
