// The guard around an activity must not stay in memory after the activity's end: a worker runs tens of thousands of activities.
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Context } from '@temporalio/activity';
import type { ActivityExecuteInput } from '@temporalio/worker';
import { describe, expect, it } from 'vitest';
import { guardActivities } from '../../../src/workers/attempt/activity-guard.js';
import type { OpenActivities } from '../../../src/workers/attempt/open-activities.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const open = { open: () => () => undefined } as unknown as OpenActivities;
const input = { args: [], headers: {} } as unknown as ActivityExecuteInput;

function contextOf(activityId: string, cancellation: AbortController): Context {
  const info = { activityId, base64TaskToken: activityId, attempt: 1, heartbeatDetails: undefined };
  return { info, cancellationSignal: cancellation.signal, heartbeat: () => undefined } as unknown as Context;
}

describe('an activity that has ended', () => {
  it('leaves nothing in its worker’s memory', async () => {
    const cutOff = new AbortController();
    const interceptors = guardActivities({ open, cutOff: cutOff.signal });
    const contexts: WeakRef<Context>[] = [];
    for (let i = 0; i < 100; i += 1) {
      const context = contextOf(`step-${i}`, new AbortController());
      contexts.push(new WeakRef(context));
      const listens = async (): Promise<void> => {
        Context.current().cancellationSignal.addEventListener('abort', () => undefined);
        Context.current().cancelled.catch(() => undefined);
      };
      await interceptors(context).inbound?.execute?.(input, listens);
    }
    for (let i = 0; i < 5; i += 1) {
      await turn();
      collectGarbage();
    }
    expect(contexts.filter((one) => one.deref() !== undefined).length).toBeLessThanOrEqual(2);
    expect(cutOff.signal.aborted).toBe(false);
  });
});

describe('an activity that runs', () => {
  it.each(['its cancellation', 'the end of its worker'])(
    'is aborted by %s, with the reason',
    async (what) => {
      const [cancellation, cutOff] = [new AbortController(), new AbortController()];
      const inbound = guardActivities({ open, cutOff: cutOff.signal })(
        contextOf('step', cancellation),
      ).inbound;
      const running = inbound?.execute?.(input, () => Context.current().cancelled);
      await turn();
      (what === 'its cancellation' ? cancellation : cutOff).abort(new Error(what));
      await expect(running).rejects.toThrow(what);
    },
  );

  it('is aborted at once if its worker had ended before it started', async () => {
    const cutOff = new AbortController();
    cutOff.abort(new Error('over'));
    const context = contextOf('step', new AbortController());
    const inbound = guardActivities({ open, cutOff: cutOff.signal })(context).inbound;
    await expect(inbound?.execute?.(input, () => Context.current().cancelled)).rejects.toThrow('over');
  });
});
