// Runs whose histories are kept as golden files. Each history must replay with all later code; otherwise runs that are under way during an
// upgrade would stop. Each run covers other parts of the workflow.
import { ApplicationFailure } from '@temporalio/activity';
import type { History } from '@temporalio/common/lib/proto-utils.js';
import type { LeaseRequest } from '../../src/activities/contracts.js';
import type { SweepActivities, SweepNodeActivities } from '../../src/activities/sweep-contracts.js';
import { evalSweep } from '../../src/workflows/sweep/eval-sweep.js';
import {
  checkpointNowUpdate,
  pauseNowUpdate,
  pauseUpdate,
  resumeUpdate,
  revokedSignal,
  setHyperparametersUpdate,
  stopAfterUpdate,
} from '../../src/workflows/messages.js';
import type { ConnectedTemporal, TestTemporalOptions } from '../support/servers/temporal-server.js';
import { gate, outlineOf, scriptRun, until, withRun, withWorkers } from './scripted-run.js';

/** Settings of the server that records them; with these, the longest run continues as new. */
export const goldenServer: TestTemporalOptions = {
  dynamicConfig: { 'limit.historyCount.suggestContinueAsNew': 240 },
};

/** The golden histories, by file name. */
export const goldenLives: Record<string, (temporal: ConnectedTemporal) => Promise<History>> = {
  /** Paused at a step boundary, changed, then resumed. */
  'training-run': async (temporal) => {
    const script = scriptRun(outlineOf('golden', { phases: phases(2, 2) }));
    const held = gate();
    script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
    return withRun(temporal, script, async (run) => {
      await held.reached;
      await run.executeUpdate(pauseUpdate);
      held.release();
      await until(run, (status) => status.phase === 'paused');
      await run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 0.05 }] });
      await run.executeUpdate(resumeUpdate);
      await run.result();
      return run.fetchHistory();
    });
  },

  /** An execution that was begun by continue-as-new and ends by continue-as-new. */
  'begun-anew': async (temporal) => {
    const script = scriptRun(outlineOf('golden-anew', { phases: phases(0, 40), ckpt_interval: 10 }));
    return withRun(temporal, script, async (run) => {
      await run.result();
      const { workflowId, firstExecutionRunId } = run;
      const { events } = await temporal.client.workflow
        .getHandle(workflowId, firstExecutionRunId)
        .fetchHistory();
      const second = events?.at(-1)?.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId;
      if (!second) throw new Error('the run has not begun again');
      return temporal.client.workflow.getHandle(workflowId, second).fetchHistory();
    });
  },

  /** Paused in the middle of a step; meanwhile a checkpoint is requested; ended by `stopAfter`. */
  'paused-now': async (temporal) => {
    const script = scriptRun(outlineOf('golden-now', { phases: phases(0, 6), ckpt_interval: 100 }));
    const held = gate();
    script.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
    return withRun(temporal, script, async (run) => {
      await held.reached;
      await run.executeUpdate(pauseNowUpdate);
      await until(run, (status) => status.phase === 'paused');
      await run.executeUpdate(checkpointNowUpdate);
      await until(run, (status) => status.lastCheckpoint === 1);
      held.release();
      await run.executeUpdate(stopAfterUpdate, { args: [{ step: 3 }] });
      await run.executeUpdate(resumeUpdate);
      await run.result();
      return run.fetchHistory();
    });
  },

  /** Blocked by a quarantined record, so the step begins again from its plan; then blocked by a server that is down. */
  blocked: async (temporal) => {
    const script = scriptRun(outlineOf('golden-blocked', { phases: phases(1, 3) }));
    const broken = new Map([
      ['collect 2', 'UnreadableRecord'],
      ['evaluate interval 3', 'EnvironmentsUnavailable'],
    ]);
    script.before = (call) => {
      const type = broken.get(call);
      if (type) throw ApplicationFailure.nonRetryable(`${call} cannot go on`, type);
    };
    return withRun(temporal, script, async (run) => {
      for (const call of [...broken.keys()]) {
        await until(run, ({ blocked }) => blocked?.reason.includes(call) === true);
        broken.delete(call);
        await run.executeUpdate(resumeUpdate);
      }
      await run.result();
      return run.fetchHistory();
    });
  },

  /** Loses its node in the middle of a step, and continues on another node. */
  moved: async (temporal) => {
    const first = scriptRun(outlineOf('golden-moved', { phases: phases(0, 3) }), 'golden-lost');
    const held = gate();
    first.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
    const requests: Pick<LeaseRequest, 'lease'>[] = [];
    const other = { ...first, node: 'golden-found', activities: { ...first.activities } };
    first.grant = (request) => {
      requests.push(request);
      return requests.length === 1 ? first.node : other.node;
    };
    return withWorkers(temporal, other, () =>
      withRun(temporal, first, async (run) => {
        await held.reached;
        const { lease = '' } = requests[0] ?? {};
        held.release();
        await run.signal(revokedSignal, { lease, node: first.node, reason: 'lost' });
        await run.result();
        return run.fetchHistory();
      }),
    );
  },

  /** Begins at a step of another run, with a budget that ends it. */
  fork: async (temporal) => {
    const lineage = { run: 'golden', step: 2 };
    const script = scriptRun(outlineOf('golden-fork', { phases: phases(0, 6), lineage }));
    for (const step of [0, 1, 2]) script.committed.set(step, { control: 0, lr: 0.1 });
    script.budget = () => ({
      budget: {
        limits: [{ name: 'max_tokens', limit: 250, counts: 'tokens', each: 1 }],
        spent: { tokens: 0, gpu_seconds: 0 },
        startedAt: '2026-01-01T00:00:00.000Z',
      },
    });
    return withRun(temporal, script, async (run) => {
      await run.result();
      return run.fetchHistory();
    });
  },

  /** Cancelled while it samples, and still writes its report. */
  cancelled: async (temporal) => {
    const script = scriptRun(outlineOf('golden-cancelled', { phases: phases(0, 4) }));
    const held = gate();
    script.before = (call) => (call === 'collect 2' ? held.wait() : undefined);
    return withRun(temporal, script, async (run) => {
      await held.reached;
      await run.cancel();
      await run.result().catch(() => undefined);
      return run.fetchHistory();
    });
  },

  /** Four pairs: one loses its node and is evaluated on another, and one cannot be evaluated. */
  sweep: async (temporal) => {
    const first = scriptRun(outlineOf('golden-sweep', {}), 'golden-first');
    const leases: string[] = [];
    first.grant = ({ lease }) => (leases.push(lease) === 1 ? first.node : 'golden-second');
    const held = gate();
    const begun = new Set<number>();
    const sweep: SweepActivities & SweepNodeActivities = {
      planSweep: (input) =>
        Promise.resolve({
          ...{ sweep: input.sweep, project: 'tests', suitesOf: 'golden', pairs: 4, parallel: 1 },
        }),
      pairsToDo: () =>
        Promise.resolve({
          pairs: [0, 1, 2, 3].map((n) => ({ n, run: 'golden', step: n + 1, suite: 'final', missing: 4 })),
          seen: 3,
        }),
      evaluatePair: async ({ pair }) => {
        const again = begun.has(pair);
        begun.add(pair);
        if (pair === 1 && !again) await held.wait();
        if (pair === 2) throw ApplicationFailure.nonRetryable('its suite is damaged', 'UnreadableRecord');
        return { state: '0'.repeat(64), pass_at_1: 0.5, graded: 4, unknown: 0, seconds: 1 };
      },
      compareSweep: () =>
        Promise.resolve({ report: 'comparison.html', results: 'results.jsonl', alarms: [], table: '' }),
    };
    const activities = { ...first.activities, ...sweep };
    return withWorkers(temporal, { node: first.node, activities }, (queue) =>
      withWorkers(temporal, { node: 'golden-second', activities }, async () => {
        const run = await temporal.client.workflow.start(evalSweep, {
          ...{ taskQueue: queue, workflowId: 'eval/tests/golden', args: [{}] },
        });
        await held.reached;
        const [lease = ''] = leases;
        await run.signal(revokedSignal, { lease, node: first.node, reason: 'lost' });
        await run.result();
        held.release();
        return run.fetchHistory();
      }),
    );
  },
};

function phases(sft: number, grpo: number) {
  const warm = { name: 'drill', kind: 'sft' as const, steps: sft };
  return [...(sft > 0 ? [warm] : []), { name: 'grpo', kind: 'grpo' as const, steps: grpo }];
}
