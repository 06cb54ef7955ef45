// The cluster that the test files of one process use, one after the other: starting one takes longer than most runs. Names of runs must
// differ between these files. A file needs a cluster of its own if it kills the Temporal server, sets its limits, or gives workers another
// store or engine. It runs until the whole test run ends (whole-run/global-setup.ts).
import { Cluster } from './cluster.js';
import { testToken } from '../servers/environment-process.js';
import { until } from '../until.js';
import { sharedMark, testRunFolder } from '../whole-run/global-setup.js';
import { defaultPoolId, poolQuery } from '../../../src/workflows/messages.js';

/** Variable that names the grading token of environments outside the cluster. */
export const tokenVariable = 'LONGHAUL_TEST_GRADING_TOKEN';

let kept: Cluster | null = null;
let isLent = false;

/** `nodes` share the id `shared`. The caller gives the cluster back by `giveBack`. */
export async function borrowCluster({ nodes = 1, orchestrators = 1 } = {}): Promise<Cluster> {
  if (isLent) throw new Error('the cluster of this process is in use');
  kept ??= await start(nodes, orchestrators);
  isLent = true;
  await kept.haveOrchestrators(orchestrators);
  await kept.haveNodes(nodes);
  return kept;
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

/** Leaves no run, point or further node for the next file. A cluster that cannot be mended is stopped. */
export async function giveBack(cluster: Cluster | undefined): Promise<void> {
  if (cluster === undefined) return;
  isLent = false;
  try {
    await mend(cluster);
  } catch (error) {
    kept = null;
    await cluster.stop();
    throw error;
  }
}

async function mend(cluster: Cluster): Promise<void> {
  const { client } = cluster.temporal;
  for await (const { workflowId } of client.workflow.list({ query: 'ExecutionStatus = "Running"' }))
    if (workflowId !== defaultPoolId)
      await client.workflow.getHandle(workflowId).terminate('its test is over');
  cluster.environments.child.kill('SIGCONT');
  for (const worker of [...cluster.orchestrators, ...cluster.nodes]) {
    worker.letGoAll();
    if (worker.isRunning) worker.wake();
  }
  const others = cluster.nodes.filter(({ name }) => !/^node \d+$/.test(name));
  for (const node of others) {
    if (node.isRunning) await node.leave();
    await node.stop();
    cluster.nodes.splice(cluster.nodes.indexOf(node), 1);
  }
  for (const worker of [...cluster.orchestrators, ...cluster.nodes]) if (!worker.isRunning) worker.start();
  await until(async () => {
    const { nodes, leases } = await client.workflow.getHandle(defaultPoolId).query(poolQuery);
    return leases.length === 0 && nodes.every(({ id, state }) => id === 'shared' || state !== 'up');
  }, 'the pool to be at rest');
}
