// A run that waits for a person keeps its node for a minute. After a longer time, other runs would wait for the node too long; after a
// shorter time, another node would too often have to restore the run's state.
import { ApplicationFailure } from '@temporalio/common';
import type { History } from '@temporalio/common/lib/proto-utils.js';
import { describe, expect, it } from 'vitest';
import { pauseUpdate, resumeUpdate, statusQuery } from '../../../src/workflows/messages.js';
import { placing } from '../../../src/workflows/policies.js';
import { hurriedPlacing } from '../hurried/times.js';
import { hurriedTimes, type PoolStage, shortScript, usePool } from '../pool/pool-stage.js';
import { gate, until } from '../scripted-run.js';

describe('the node of a run that waits for a person', () => {
  let stage: PoolStage;
  usePool((opened) => (stage = opened), {}, hurriedTimes);

  it('goes to another run after a minute, whether its run is paused or blocked, and its run later gets a node again', async () => {
    // The workflows of this test wait for a shorter time.
    expect(placing.idleRunHoldsMs).toBe(60_000);
    await Promise.all([stage.node('local'), stage.node('second')]);
    const phases = ['paused', 'blocked'] as const;
    const idle = await Promise.all(phases.map(placed));
    expect(idle.map(({ node }) => node).sort()).toEqual(['local', 'second']);
    const waiters = await Promise.all(phases.map(() => stage.run(shortScript('other'))));
    await stage.until(({ queue }) => queue.length === 2);
    for (const { stop } of idle) await stop();
    for (const waiter of waiters) expect(await waiter.result()).toMatchObject({ step: 3 });
    for (const { phase, run, script } of idle) {
      expect(await until(run, (status) => status.node === null)).toMatchObject({ phase });
      const { events } = await run.fetchHistory();
      expect(idleMs(events ?? [])).toBeGreaterThanOrEqual(hurriedPlacing.idleRunHoldsMs);
      script.before = () => undefined;
      await run.executeUpdate(resumeUpdate);
      expect(await run.result()).toMatchObject({ step: 3 });
      const requests = stage.requests.filter((request) => request.run === script.outline.run);
      expect(new Set(requests.map(({ lease }) => lease)).size).toBe(2);
    }
  });

  /** A run that works on a node until `stop`. */
  async function placed(phase: 'paused' | 'blocked') {
    const [script, held] = [shortScript(phase), gate()];
    script.before = (call) => {
      if (call === 'collect 1') return held.wait();
      if (call === 'update 2' && phase === 'blocked')
        throw ApplicationFailure.nonRetryable('no server answers', 'EnvironmentsUnavailable');
    };
    const run = await stage.run(script);
    await held.reached;
    const { node } = await run.query(statusQuery);
    const stop = async (): Promise<void> => {
      if (phase === 'paused') await run.executeUpdate(pauseUpdate);
      held.release();
    };
    return { phase, script, run, node, stop };
  }
});

/** Time from the end of the run's last work to the release of its node, by the server's clock. */
function idleMs(events: NonNullable<History['events']>): number {
  const atMs = ({ eventTime }: (typeof events)[number]): number =>
    Number(eventTime?.seconds) * 1000 + (eventTime?.nanos ?? 0) / 1e6;
  const released = events.findIndex(
    ({ signalExternalWorkflowExecutionInitiatedEventAttributes: signal }) => signal?.signalName === 'release',
  );
  const worked = events
    .slice(0, released)
    .findLast(
      (event) => event.activityTaskCompletedEventAttributes ?? event.activityTaskFailedEventAttributes,
    );
  if (!worked || !events[released]) throw new Error('the run released no node');
  return atMs(events[released]) - atMs(worked);
}
