// Faults of an engine: it dies while it computes, or while it replies.
import { setTimeout as delay } from 'node:timers/promises';
import { isBusy, pidOf, sent, signalled } from '../victims.js';
import { type Fault, momentary, nothingToUndo } from './fault.js';

export const engineFaults: readonly Fault[] = [
  {
    name: 'engine-aborts-at-work',
    does: 'SIGABRT, as after a failed assertion, to an engine that is executing a request',
    undone: 'the node starts a new engine',
    ...momentary,
    strike: async ({ trial }) => {
      while (!trial.over) {
        const pid = pidOf(trial, 'engine');
        if (pid !== null && isBusy(pid) && sent(pid, 'SIGABRT')) return nothingToUndo;
        await delay(1);
      }
      return null;
    },
  },
  {
    name: 'engine-aborts-in-mid-frame',
    does: 'an engine is killed; the next engine sends up to 20 whole replies and half a reply, then aborts',
    undone: 'the node starts a third engine',
    ...momentary,
    strike: async ({ trial, random, cutEngine }) => {
      cutEngine(1 + random.below(20));
      return (await signalled(trial, 'engine', 'SIGKILL')) === null ? null : nothingToUndo;
    },
  },
];
