// Sends signals to every process of the stack.
import { sent, signalled, victimNames, type VictimName } from '../victims.js';
import { type Fault, lasting, momentary, nothingToUndo } from './fault.js';

const ended =
  (verb: string, signal: 'SIGKILL' | 'SIGTERM', when = '') =>
  (victim: VictimName): Fault => ({
    ...momentary,
    name: `${verb}-${victim}`,
    does: `${signal} to the ${victim} process${when}`,
    undone: 'the supervisor (for an engine, its node) starts a new process',
    strike: async ({ trial }) => ((await signalled(trial, victim, signal)) === null ? null : nothingToUndo),
  });
const kill = ended('kill', 'SIGKILL');
const terminate = ended('terminate', 'SIGTERM', ', as after a spot notice or a roll-out');

const freeze = (victim: VictimName): Fault => ({
  name: `freeze-${victim}`,
  does: `SIGSTOP to the ${victim} process: it keeps its connections but does not answer`,
  undone: 'SIGCONT to the same process',
  ...lasting,
  strike: async ({ trial }) => {
    const pid = await signalled(trial, victim, 'SIGSTOP');
    // Nothing is left to do if somebody has ended the frozen process by then.
    return pid === null ? null : () => void sent(pid, 'SIGCONT');
  },
});

export const processFaults: readonly Fault[] = [kill, terminate, freeze].flatMap((of) => victimNames.map(of));
