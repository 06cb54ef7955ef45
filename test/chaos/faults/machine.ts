// A machine whose disks are full or whose clock jumps, as libc-shim.ts shows it to the workers.
import { signalled, type VictimName } from '../victims.js';
import { type Fault, restartS, type World } from './fault.js';

const [minute, hour, day] = [60, 3_600, 86_400];

/** As a full disk often shows: a process dies of something else, and meets it at each start. */
async function restarts({ trial }: World, victims: readonly VictimName[]): Promise<void> {
  for (const victim of victims) await signalled(trial, victim, 'SIGKILL');
}

export const machineFaults: readonly Fault[] = [
  {
    name: 'node-disk-full',
    does: "every write below the node's folder, its engine's too, fails with ENOSPC",
    undone: 'there is room again',
    needs: ['shim'],
    lasts: true,
    recoversWithinS: restartS,
    strike: async ({ shim }) => {
      shim?.setNodeFull(true);
      return () => shim?.setNodeFull(false);
    },
  },
  {
    name: 'store-disk-full',
    does: "every write below the store's directory fails with ENOSPC, in every worker",
    undone: 'there is room again',
    needs: ['shim', 'directory'],
    lasts: true,
    recoversWithinS: restartS,
    strike: async ({ shim }) => {
      shim?.setStoreFull(true);
      return () => shim?.setStoreFull(false);
    },
  },
  {
    name: 'node-restarts-on-full-disk',
    does: "the node's disk is full, and its worker is killed and has to start there",
    undone: 'there is room again',
    needs: ['shim'],
    lasts: true,
    recoversWithinS: restartS,
    strike: async (world) => {
      world.shim?.setNodeFull(true);
      await restarts(world, ['node']);
      return () => world.shim?.setNodeFull(false);
    },
  },
  {
    name: 'workers-restart-on-full-store',
    does: "the store's disk is full, and every worker is killed and has to start on it",
    undone: 'there is room again',
    needs: ['shim', 'directory'],
    lasts: true,
    recoversWithinS: restartS,
    strike: async (world) => {
      world.shim?.setStoreFull(true);
      await restarts(world, ['node', 'orchestrator']);
      return () => world.shim?.setStoreFull(false);
    },
  },
  {
    name: 'node-clock-jumps',
    does: 'the wall clock of the node and its engine jumps by a minute to a day, forwards or back',
    undone: 'it jumps back',
    needs: ['shim'],
    lasts: true,
    recoversWithinS: restartS,
    strike: async ({ shim, random }) => {
      shim?.setClock(random.pick([-day, -hour, -minute, minute, hour, day]));
      return () => shim?.setClock(0);
    },
  },
];
