// Faults of the Temporal server: it is unreachable, or restarts with an empty database. Its crashes and freezes are in processes.ts.
import { rmSync } from 'node:fs';
import { startTraining } from '../../../src/cli/train/start-training.js';
import { answered } from '../trial.js';
import { signalled } from '../victims.js';
import type { Fault, World } from './fault.js';

/** After an outage, clients try again with pauses that grow to half a minute. */
const recoversWithinS = 120;

async function leaves({ trial, temporal }: World): Promise<boolean> {
  temporal.away = true;
  if ((await signalled(trial, 'temporal', 'SIGKILL')) !== null) return true;
  temporal.away = false;
  return false;
}

/** Starts the run again as `longhaul train` does, as soon as the new server answers. */
async function startedAgain({ trial }: World): Promise<void> {
  const { client, spec } = trial;
  await answered(() => client.withDeadline(Date.now() + 5_000, () => startTraining(client, spec)));
  trial.workflowId = `train/${spec.name}`;
}

export const temporalFaults: readonly Fault[] = [
  {
    name: 'temporal-away',
    does: 'the Temporal server is killed, and nothing answers at its address',
    undone: 'it is started again with its database',
    needs: [],
    lasts: true,
    recoversWithinS,
    strike: async (world) =>
      (await leaves(world))
        ? () => {
            world.temporal.away = false;
          }
        : null,
  },
  {
    name: 'temporal-emptied',
    does: 'the Temporal server is killed, and its database is deleted',
    undone: 'it is started again empty, and the run is started again as `longhaul train` does',
    needs: [],
    lasts: true,
    recoversWithinS,
    strike: async (world) => {
      if (!(await leaves(world))) return null;
      const { temporal } = world;
      for (const end of ['', '-wal', '-shm', '-journal'])
        rmSync(`${temporal.databaseFile}${end}`, { force: true });
      return async () => {
        temporal.away = false;
        await startedAgain(world);
      };
    },
  },
];
