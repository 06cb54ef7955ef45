// The cluster that the test files of one process use, one after the other: starting one takes longer than most runs. Names of runs must
// differ between these files. A file needs a cluster of its own if it kills the Temporal server, sets its limits, or gives workers another
// store or engine. It runs until the whole test run ends (whole-run/global-setup.ts).
import { Cluster } from './cluster.js';
import { testToken } from '../servers/environment-process.js';
import { until } from '../until.js';
import { sharedMark, testRunFolder } from '../whole-run/test-run.js';
import { defaultPoolId, poolQuery } from '../../../src/workflows/messages.js';

/** Environment variable of the workers that holds the grading token. */
export const tokenVariable = 'LONGHAUL_TEST_GRADING_TOKEN';

/** The id of the nodes that every file finds. */
const sharedNode = 'shared';

let idle: Cluster | null = null;
let lent: Cluster | null = null;
/** Names of the runs of earlier files. */
const used = new Set<string>();

/** `nodes` share an id. The caller returns the cluster by `returnCluster`. */
export async function borrowCluster({ nodes = 1, orchestrators = 1 } = {}): Promise<Cluster> {
  if (lent) throw new Error('another file uses the cluster of this process');
  const cluster = idle ?? (await start(nodes, orchestrators));
  idle = null;
  try {
    await cluster.scaleOrchestrators(orchestrators);
    await cluster.scaleNodes(nodes);
  } catch (error) {
    await cluster.stop();
    throw error;
  }
  cluster.refused = used;
  lent = cluster;
  return cluster;
}

async function start(nodes: number, orchestrators: number): Promise<Cluster> {
  const env = { [tokenVariable]: testToken, [sharedMark]: 'yes' };
  // All processes inherit the mark, and workers that are started again later have it from the cluster.
  process.env[sharedMark] = 'yes';
  try {
    return await Cluster.start({ nodes, orchestrators, env, below: testRunFolder() });
  } finally {
    delete process.env[sharedMark];
  }
}

/** Leaves no point and no further node for the next file. A cluster that a failed test left amid a run is stopped. */
export async function returnCluster(cluster: Cluster | undefined): Promise<void> {
  if (cluster === undefined) return;
  try {
    if (await hasOpenRuns(cluster)) return await cluster.stop();
    await reset(cluster);
    for (const name of cluster.started) used.add(name);
    idle = cluster;
  } catch (error) {
    await cluster.stop();
    throw error;
  } finally {
    lent = null;
  }
}

async function hasOpenRuns({ temporal: { client } }: Cluster): Promise<boolean> {
  for await (const { workflowId } of client.workflow.list({ query: 'ExecutionStatus = "Running"' })) {
    if (workflowId === defaultPoolId) continue;
    // Temporal's list of workflows is updated with a delay.
    const { status } = await client.workflow.getHandle(workflowId).describe();
    if (status.name === 'RUNNING') return true;
  }
  return false;
}

async function reset(cluster: Cluster): Promise<void> {
  cluster.environments.child.kill('SIGCONT');
  for (const worker of [...cluster.orchestrators, ...cluster.nodes]) {
    worker.letGoAll();
    if (worker.isRunning) worker.wake();
  }
  for (const node of cluster.furtherNodes()) {
    if (node.isRunning) await node.leave();
    await node.stop();
    cluster.nodes.splice(cluster.nodes.indexOf(node), 1);
  }
  for (const worker of [...cluster.orchestrators, ...cluster.nodes]) if (!worker.isRunning) worker.start();
  await until(async () => {
    const { nodes, leases } = await cluster.temporal.client.workflow
      .getHandle(defaultPoolId)
      .query(poolQuery);
    return leases.length === 0 && nodes.every(({ id, state }) => id === sharedNode || state !== 'up');
  }, 'the pool to be at rest');
}
