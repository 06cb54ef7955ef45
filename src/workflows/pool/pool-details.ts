// The live text of the pool in the Temporal UI: the nodes, the runs that work on them, and the waiting requests.
import { nameOfNumerics } from '../../spec/records/numerics.js';
import { markdownTable, plain } from '../status/markdown.js';
import type { PoolView } from '../messages.js';

/** Maximum number of rows in a table: the UI puts the text into a URL. */
const shown = 30;

/** Returns Markdown. Times are points in time, not durations, because the text does not change between two reports. */
export function poolDetails({ nodes, leases, queue }: PoolView): string {
  const places = nodes.filter(({ state }) => state === 'up').reduce((sum, node) => sum + node.places, 0);
  const up = nodes.filter(({ state }) => state === 'up').length;
  const parts = [
    `**${up} ${up === 1 ? 'node' : 'nodes'}** up with ${places} ${places === 1 ? 'place' : 'places'} · ` +
      `**${leases.length}** held · **${queue.length}** waiting`,
  ];
  const heldBy = (id: string): string =>
    leases
      .filter(({ node }) => node === id)
      .map(({ run, since }) => `${plain(run)} since ${clock(since)}`)
      .join(', ') || '–';
  if (nodes.length > 0)
    parts.push(
      markdownTable([
        ['node', 'state', 'heard', 'computes with', 'held by'],
        ...nodes
          .slice(0, shown)
          .map(({ id, state, lastSeen, numerics, gpu }) => [
            `**${plain(id)}**`,
            state === 'up' ? state : `**${state}**`,
            clock(lastSeen),
            plain(gpu?.name ?? (numerics ? nameOfNumerics(numerics) : '?')),
            heldBy(id),
          ]),
      ]),
    );
  if (queue.length > 0)
    parts.push(['**Waiting, in order of the queue**', '', ...queue.slice(0, shown).map(waiting)].join('\n'));
  const more = Math.max(nodes.length, queue.length) - shown;
  if (more > 0) parts.push(`and ${more} more`);
  parts.push('The whole list: `longhaul nodes` or `temporal workflow query -w nodes/default --type pool`');
  return parts.join('\n\n');
}

function waiting({ run, project, priority, since, why }: PoolView['queue'][number]): string {
  return `- ${plain(run)} (${plain(project)}, priority ${priority}) since ${clock(since)}: ${plain(why)}`;
}

/** `23 Nov 02:31:05 UTC`: with the date, because a lease may be days old, and without hyphens, at which a narrow cell would break it. */
function clock(time: number): string {
  const text = new Date(time).toUTCString();
  return `${text.slice(5, 11)} ${text.slice(17, 25)} UTC`;
}
