// Probes for everything that a run needs. Each probe answers in seconds; a failed one says how to fix the problem.
import { statfs } from 'node:fs/promises';
import type { Client } from '@temporalio/client';
import { httpRequest, type NoAnswer } from '../../base/http-request.js';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import { openStore, probeStore } from '../../store/open-store.js';
import type { TemporalConfig } from '../../workers/process/config.js';
import { connectClient } from '../../workers/temporal/temporal-connection.js';
import { printable, storeFolderProblem, unreadableStore } from '../output.js';
import { poolView } from '../pool-view.js';
import { orchestratorQueue, type PoolView } from '../../workflows/messages.js';

export interface CheckResult {
  check: string;
  ok: boolean;
  /** What the probe found, or what is wrong and how to fix it. */
  detail: string;
}

const answerWithinMs = 5_000;
/** temporal.api.enums.v1.TaskQueueType */
const activityTasks = 2;
const neededDiskGiB = 1;

/** Runs a probe. If it throws, the check has failed and the error's message is the detail. */
export async function check(name: string, probe: () => Promise<string>): Promise<CheckResult> {
  try {
    return { check: name, ok: true, detail: await probe() };
  } catch (error) {
    const detail = withoutKnownSecrets(error instanceof Error ? error.message : String(error));
    return { check: name, ok: false, detail };
  }
}

/** Throws `TemporalUnreachable`, or an error that names the missing namespace. `also`: a further check of the server. */
export async function probeTemporal(
  config: TemporalConfig,
  also: (client: Client) => Promise<void> = () => Promise.resolve(),
): Promise<string> {
  const { client, close } = await connectClient(config, answerWithinMs);
  try {
    const deadline = Date.now() + answerWithinMs;
    const info = await client.withDeadline(deadline, () => client.workflowService.getSystemInfo({}));
    try {
      await client.withDeadline(deadline, () =>
        client.workflowService.describeNamespace({ namespace: config.namespace }),
      );
    } catch (error) {
      throw new Error(
        `${config.address} answers, but the namespace "${config.namespace}" cannot be used: ${(error as Error).message}. ` +
          'Create it with `temporal operator namespace create`, or name another with --namespace or TEMPORAL_NAMESPACE',
        { cause: error },
      );
    }
    await also(client);
    return `server ${info.serverVersion ?? 'of unknown version'} at ${config.address}, namespace ${config.namespace}`;
  } finally {
    await close();
  }
}

/** Checks that an orchestrator polls its queue: without one, no run starts or goes on. `start`: the command that starts workers. */
export async function probeWorkers(config: TemporalConfig, start: string): Promise<string> {
  const { client, close } = await connectClient(config, answerWithinMs);
  try {
    const { pollers } = await client.withDeadline(Date.now() + answerWithinMs, () =>
      client.workflowService.describeTaskQueue({
        namespace: config.namespace,
        taskQueue: { name: orchestratorQueue },
        taskQueueType: activityTasks,
      }),
    );
    const count = pollers?.length ?? 0;
    if (count > 0) return `${count} polling the queue "${orchestratorQueue}"`;
    throw new Error(`no orchestrator polls the queue "${orchestratorQueue}": start one with \`${start}\``);
  } finally {
    await close();
  }
}

/** Checks that a node can take work: without one, every run waits. `start`: the command that starts one. */
export async function probeNodes(config: TemporalConfig, start: string): Promise<string> {
  const { client, close } = await connectClient(config, answerWithinMs);
  try {
    return nodesText((await poolView(client)).nodes, start);
  } finally {
    await close();
  }
}

/** Throws if no node is up. */
export function nodesText(nodes: PoolView['nodes'], start: string): string {
  const up = nodes.filter(({ state }) => state === 'up').length;
  const fix = `start one with \`${start}\`, or a node worker (dist/workers/node-main.js); its log says why the last one ended`;
  if (nodes.length === 0) throw new Error(`no node has reported, so every run waits: ${fix}`);
  const all = nodes.map(({ id, state }) => printable(`${id} is ${state}`)).join(', ');
  if (up === 0) throw new Error(`no node takes work, so every run waits (${all}): ${fix}`);
  return up === nodes.length ? `${up} up` : `${up} of ${nodes.length} up: ${all}`;
}

/**
 * Checks that creates are exclusive and visible at once (R31) and that a directory has free space. A missing directory is not created,
 * because its name may be mistyped.
 */
export async function checkStore(address: string): Promise<string> {
  const problem = await storeFolderProblem(address);
  if (problem === 'ENOENT')
    throw new Error(
      `there is no store at ${address}: correct the address, or start a stack or a worker with this address, which creates the folder`,
    );
  if (problem !== null) throw new Error(unreadableStore(address, problem));
  const store = await openStore(address);
  await probeStore(store);
  if (!store.address.startsWith('dir:')) return `${store.address} takes create-only puts`;
  const { bavail, bsize } = await statfs(store.address.slice('dir:'.length));
  const freeGiB = (bavail * bsize) / 2 ** 30;
  if (freeGiB < neededDiskGiB) {
    throw new Error(
      `${store.address} has ${freeGiB.toFixed(1)} GiB left; a run needs at least ${neededDiskGiB}: make room`,
    );
  }
  return `${store.address} takes create-only puts; ${freeGiB.toFixed(0)} GiB free`;
}

/** OpenEnv servers answer `GET /health`. */
export async function probeEnvironments(
  url: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  const health = new URL('health', url.endsWith('/') ? url : `${url}/`);
  // A redirect could take the headers to another host.
  const redirect = Object.keys(headers).length === 0 ? 'follow' : 'error';
  const response = await httpRequest(health, { headers, redirect, timeoutMs: answerWithinMs }).catch(
    (error: NoAnswer) => {
      throw new Error(
        `no environment server answers at ${health.href} (${error.message}): start it, or correct the url in the spec`,
        { cause: error },
      );
    },
  );
  if (!response.ok) throw new Error(`${health.href} answers ${response.status}: is it an OpenEnv server?`);
  return `${url} is healthy`;
}

/** For people. */
export function checksTable(results: readonly CheckResult[]): string {
  const width = Math.max(...results.map(({ check: name }) => name.length));
  const lines = results.map(({ check: name, ok, detail }) => {
    const indented = detail.replaceAll('\n', `\n${' '.repeat(width + 9)}`);
    return `${ok ? 'ok   ' : 'WRONG'}  ${name.padEnd(width)}  ${indented}`;
  });
  const wrong = results.filter(({ ok }) => !ok).length;
  return [
    ...lines,
    '',
    wrong === 0 ? 'Everything answers.' : `${wrong} of ${results.length} checks failed.`,
  ].join('\n');
}
