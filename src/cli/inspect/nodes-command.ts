// `longhaul nodes`: the nodes that report to the pool, what they offer, which runs hold them, and which runs wait.
import type { Command } from 'commander';
import { timeSpan } from '../../report/format.js';
import { nameOfNumerics } from '../../spec/records/numerics.js';
import type { PoolView } from '../../workflows/messages.js';
import { inFolder, printable, textTable, withOutput } from '../output.js';
import { poolView } from '../pool-view.js';
import { type TemporalFlags, withClient, withTemporalFlags } from '../temporal-access.js';

const gib = 2 ** 30;

export function register(program: Command): void {
  withTemporalFlags(
    program
      .command('nodes')
      .description('list the nodes, the runs that hold them and the runs that wait for one'),
    'reads',
  )
    .option('--json', 'print one JSON object')
    .action(
      withOutput(async (flags: TemporalFlags & { json?: boolean }) => {
        const view = await withClient(flags, poolView);
        console.log(flags.json ? JSON.stringify(view) : describePool(view, Date.now(), flags));
      }),
    );
}

/** `now`: milliseconds since the epoch, from which ages are computed. */
export function describePool(
  { nodes, leases, queue }: PoolView,
  now: number,
  flags: TemporalFlags = {},
): string {
  if (nodes.length === 0 && queue.length === 0)
    return `No node has reported. \`longhaul up${inFolder(flags)}\` starts one on this machine.`;
  const age = (since: number): string => timeSpan((now - since) / 1000);
  const heldBy = (node: string): string =>
    leases
      .filter((lease) => lease.node === node)
      .map(({ run, since }) => `${run} (${age(since)})`)
      .join(', ');
  const rows = nodes.map((node) => [
    ...[node.id, node.state, age(node.lastSeen)],
    node.numerics ? nameOfNumerics(node.numerics) : '',
    ...[node.gpu ? `${node.gpu.name}, ${gibibytes(node.gpu.memory_bytes)}` : ''],
    ...[gibibytes(node.memory_bytes), node.host, String(node.places), heldBy(node.id)],
  ]);
  const head = ['NODE', 'STATE', 'HEARD', 'NUMERICS', 'GPU', 'MEMORY', 'HOST', 'PLACES', 'HELD BY'];
  // After a restart the pool may list a lease on a node that has not reported yet.
  const unheard = leases.filter(({ node }) => nodes.every(({ id }) => id !== node));
  const waiting = queue.map(
    ({ run, project, priority, since, why }) =>
      `${run} (${project}, priority ${priority}) has waited for ${age(since)}: ${why}`,
  );
  const lines = [
    textTable([head, ...rows]),
    ...unheard.map(({ run, node }) => `${run} holds ${node}, which has not reported yet`),
    ...(waiting.length > 0 ? ['', 'Waiting, in order of the queue:', ...waiting] : []),
  ];
  // These names are untrusted: any client that can signal the pool chooses them.
  return lines.map(printable).join('\n');
}

function gibibytes(bytes: number): string {
  return bytes > 0 ? `${(bytes / gib).toFixed(bytes < 10 * gib ? 1 : 0)} GiB` : '';
}
