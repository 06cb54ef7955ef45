// A person controls a run while processes die. An answered Update must have its record, whichever process answers it.
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { UpdateDefinition } from '@temporalio/common';
import { checkpointNowUpdate, pauseNowUpdate, resumeUpdate } from '../../../src/workflows/messages.js';
import type { ControlState } from '../../../src/spec/records/control-records.js';
import type { OpenTrial } from '../trial.js';
import { signalled, type VictimName } from '../victims.js';
import { type Fault, lasting } from './fault.js';

/** Sends the Update again under the same id until it is answered, as a person's client does. A run that is over does not answer. */
async function say(trial: OpenTrial, update: UpdateDefinition<ControlState>): Promise<void> {
  const updateId = randomUUID();
  const giveUpAt = Date.now() + 60_000;
  while (!trial.over) {
    const handle = trial.client.workflow.getHandle(trial.workflowId);
    try {
      await trial.client.withDeadline(Date.now() + 10_000, () => handle.executeUpdate(update, { updateId }));
      return;
    } catch (error) {
      if (Date.now() > giveUpAt) throw error;
      await delay(100);
    }
  }
}

const steered = (victim: VictimName | null): Fault => ({
  name: victim === null ? 'steered' : `steered-while-${victim}-dies`,
  does: `the run is cut off by \`pause --now\`${victim === null ? '' : ` while the ${victim} process is killed`}, and a checkpoint is requested`,
  undone: 'it is resumed',
  ...lasting,
  strike: async (world) => {
    const { trial } = world;
    const paused = say(trial, pauseNowUpdate);
    // `await paused` below reports the failure, also if the victim has been killed by then.
    paused.catch(() => undefined);
    if (victim !== null) await signalled(trial, victim, 'SIGKILL');
    await paused;
    await say(trial, checkpointNowUpdate);
    return () => say(trial, resumeUpdate);
  },
});

export const steeringFaults: readonly Fault[] = [
  steered(null),
  steered('orchestrator'),
  steered('node'),
  steered('temporal'),
];
