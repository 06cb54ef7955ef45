// Faults of nodes: a run loses its node while there is another node, the pool forgets everything, or a node restarts with a damaged
// journal.
import {
  appendFileSync,
  existsSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { nodeLostAfterMs } from '../../../src/workflows/messages.js';
import { defaultPoolId } from '../../../src/workflows/messages.js';
import type { OpenTrial } from '../trial.js';
import { sent, signalled } from '../victims.js';
import { type Fault, lasting, momentary, nothingToUndo, type World } from './fault.js';

/** Longer than even a restarted pool waits before it considers a node lost. */
const lossMs = 3 * nodeLostAfterMs;

/**
 * Waits until the run works on another node than `before`, is over, or has taken too long. If the run has not moved by then, its next
 * commit comes late, and the trial finds that.
 */
async function untilMoved(trial: OpenTrial, before: string): Promise<void> {
  const begun = performance.now();
  while (!trial.over && trial.node === before && performance.now() - begun < lossMs) await delay(100);
}

/** Kills the run's node. It does not start again until `comesBack` is called. */
async function takenAway({ trial }: World): Promise<{ folder: string; comesBack: () => void } | null> {
  const { node } = trial;
  const folder = join(trial.folder, node);
  const away = `${folder}.away`;
  writeFileSync(away, '');
  const comesBack = (): void => rmSync(away, { force: true });
  if ((await signalled(trial, 'node', 'SIGKILL')) !== null) return { folder, comesBack };
  comesBack();
  return null;
}

/** All files below the folder of a worker that is not running. */
function filesBelow(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  return names.map((name) => join(folder, name)).filter((path) => statSync(path).isFile());
}

const journal = (name: string, does: string, damage: (folder: string, world: World) => void): Fault => ({
  name,
  does: `the node worker is killed, and before it starts again ${does}`,
  undone: 'the supervisor starts it',
  ...momentary,
  strike: async (world) => {
    const gone = await takenAway(world);
    if (gone === null) return null;
    damage(join(gone.folder, 'journal'), world);
    gone.comesBack();
    return nothingToUndo;
  },
});

export const nodeFaults: readonly Fault[] = [
  {
    name: 'node-lost',
    does: "the run's node dies with its disk, and the run continues on a second node",
    undone: 'the node returns with an empty disk',
    ...lasting,
    needs: ['second-node'],
    strike: async (world) => {
      const { node } = world.trial;
      const gone = await takenAway(world);
      if (gone === null) return null;
      rmSync(gone.folder, { recursive: true, force: true });
      await untilMoved(world.trial, node);
      return gone.comesBack;
    },
  },
  {
    name: 'node-partitioned',
    does: "the run's node is frozen until the pool gives its lease to a second node, which continues",
    undone: 'it wakes and continues work that is no longer its own',
    ...lasting,
    needs: ['second-node'],
    strike: async ({ trial }) => {
      const { node } = trial;
      const pid = await signalled(trial, 'node', 'SIGSTOP');
      if (pid === null) return null;
      await untilMoved(trial, node);
      return () => void sent(pid, 'SIGCONT');
    },
  },
  {
    name: 'node-drained',
    does: "SIGTERM, as after a spot notice, to the run's node while a second node is up",
    undone: 'the supervisor starts it again; the run has moved to the other node',
    ...momentary,
    needs: ['second-node'],
    strike: async ({ trial }) => {
      const { node } = trial;
      if ((await signalled(trial, 'node', 'SIGTERM')) === null) return null;
      await untilMoved(trial, node);
      return nothingToUndo;
    },
  },
  {
    name: 'pool-terminated',
    does: 'the workflow of the pool is terminated: leases, queue and nodes are forgotten',
    undone: 'the next report of a node, or the next request, starts a new pool',
    ...momentary,
    strike: async ({ trial: { client } }) => {
      await client.workflow
        .getHandle(defaultPoolId)
        .terminate('chaos')
        .catch(() => undefined);
      return nothingToUndo;
    },
  },
  journal('journal-removed', 'the journals of its episodes are deleted', (folder) =>
    rmSync(folder, { recursive: true, force: true }),
  ),
  journal(
    'journal-damaged',
    'half of each journal is cut off, or noise is added at its end',
    (folder, { random }) => {
      for (const path of filesBelow(folder)) {
        if (random.next() < 0.5) truncateSync(path, statSync(path).size >> 1);
        else appendFileSync(path, Buffer.from([0, 255, 10, 123, 34, 10]));
      }
    },
  ),
];
