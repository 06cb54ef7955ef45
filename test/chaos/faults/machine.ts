// A machine with a full disk or a jumping clock, as libc-shim.ts simulates it for the workers.
import { signalled, type VictimName } from '../victims.js';
import { type Fault, lasting } from './fault.js';

const [minute, hour, day] = [60, 3_600, 86_400];

/** `victims`: processes that are also killed, because a full disk is often noticed only when a process starts again. */
const full = (name: string, whose: 'node' | 'store', does: string, victims: VictimName[] = []): Fault => ({
  ...lasting,
  name,
  does,
  undone: 'there is free space again',
  needs: whose === 'node' ? ['shim'] : ['shim', 'directory'],
  strike: async ({ shim, trial }) => {
    const set = (isFull: boolean): void =>
      whose === 'node' ? shim?.setNodeFull(isFull) : shim?.setStoreFull(isFull);
    set(true);
    for (const victim of victims) await signalled(trial, victim, 'SIGKILL');
    return () => set(false);
  },
});

export const machineFaults: readonly Fault[] = [
  full(
    'node-disk-full',
    'node',
    "every write below the node's folder, also by its engine, fails with ENOSPC",
  ),
  full(
    'store-disk-full',
    'store',
    "every write below the store's directory fails with ENOSPC, in every worker",
  ),
  full(
    'node-restarts-on-full-disk',
    'node',
    "the node's disk is full, and its worker is killed and must start on that disk",
    ['node'],
  ),
  full(
    'workers-restart-on-full-store',
    'store',
    "the store's disk is full, and every worker is killed and must start with it",
    ['node', 'orchestrator'],
  ),
  {
    name: 'node-clock-jumps',
    does: 'the wall clock of the node and its engine jumps by a minute to a day, forwards or back',
    undone: 'it jumps back',
    ...lasting,
    needs: ['shim'],
    strike: async ({ shim, random }) => {
      shim?.setClock(random.pick([-day, -hour, -minute, minute, hour, day]));
      return () => shim?.setClock(0);
    },
  },
];
