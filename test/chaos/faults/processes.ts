// Signals to every process of the stack.
import { sent, signalled, victimNames, type VictimName } from '../victims.js';
import { type Fault, nothingToUndo, restartS } from './fault.js';

const kill = (victim: VictimName): Fault => ({
  name: `kill-${victim}`,
  does: `SIGKILL to the ${victim} process`,
  undone: 'the supervisor, or for an engine its node, starts another',
  needs: [],
  lasts: false,
  recoversWithinS: restartS,
  strike: async ({ trial }) => ((await signalled(trial, victim, 'SIGKILL')) === null ? null : nothingToUndo),
});

const terminate = (victim: VictimName): Fault => ({
  ...kill(victim),
  name: `terminate-${victim}`,
  does: `SIGTERM to the ${victim} process, as a spot notice or a roll-out sends it`,
  strike: async ({ trial }) => ((await signalled(trial, victim, 'SIGTERM')) === null ? null : nothingToUndo),
});

const freeze = (victim: VictimName): Fault => ({
  name: `freeze-${victim}`,
  does: `SIGSTOP to the ${victim} process: it holds its connections and answers nobody`,
  undone: 'SIGCONT to the same process',
  needs: [],
  lasts: true,
  recoversWithinS: restartS,
  strike: async ({ trial }) => {
    const pid = await signalled(trial, victim, 'SIGSTOP');
    // A frozen process that somebody has ended meanwhile needs nothing.
    return pid === null ? null : () => void sent(pid, 'SIGCONT');
  },
});

export const processFaults: readonly Fault[] = [kill, terminate, freeze].flatMap((of) => victimNames.map(of));
