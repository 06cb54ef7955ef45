// `temporal activity pause|unpause|reset|update-options|fail|complete` at every kind of moment. None of these commands does harm, because
// the records decide.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster, RunHandle } from '../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../support/cluster/shared-cluster.js';
import { smallRun } from '../support/small-run.js';
import { type CommandAnswer, temporalCli } from '../support/servers/temporal-cli.js';
import { undisturbedVerdict } from '../support/cluster/undisturbed.js';
import { until } from '../support/until.js';
import { expectEqual, type Verdict } from '../support/verdict.js';
import { waitingFor } from '../../src/cli/waiting-text.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { pauseUpdate, resumeUpdate, statusQuery } from '../../src/workflows/messages.js';

/** The point at which a worker is held, and the activity that it then runs; in the order in which a run reaches them. */
const moments = [
  ['episode-written', 'step-000001/evaluate-final'],
  ['plan-built', 'step-000002/plan'],
  ['episode-written', 'step-000002/collect'],
  ['batch-built', 'step-000002/update'],
  ['checkpoint-data-written', 'step-000002/upload'],
  ['update-computed', 'step-000003/update'],
  ['update-recorded', 'step-000004/update'],
] as const;
/** At these points an attempt checks whether it must stop before it goes on. So a pause interrupts it there. */
const stopsThere: readonly string[] = ['batch-built', 'checkpoint-data-written'];

describe('a run whose activities an operator changes by hand', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;
  beforeAll(async () => {
    cluster = await borrowCluster();
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(() => returnCluster(cluster));

  type Command = (verb: string, ...flags: string[]) => Promise<CommandAnswer>;
  interface Moment {
    point: string;
    run: RunHandle;
    id: string;
    /** Runs `temporal activity VERB` on the held activity. */
    command: Command;
    goesOn(): void;
  }

  /** Holds the run at each of the moments in turn. `act` must let the run go on. */
  async function atEachMoment(name: string, act: (moment: Moment) => Promise<void>): Promise<void> {
    // Evaluations are shared by state, and all of these runs have equal states. Delete them, so that each run evaluates.
    rmSync(join(cluster.folder, 'store', 'evals'), { recursive: true, force: true });
    const cli = temporalCli(cluster.temporal.address);
    const held = moments.map(([point, id]) => {
      const worker = (point === 'plan-built' ? cluster.orchestrators : cluster.nodes)[0];
      const gate = `${point}.${id.replaceAll('/', '.')}`;
      worker?.hold(gate);
      return { point, id, gate, worker };
    });
    const run = await cluster.run(spec.named(name));
    for (const { point, id, gate, worker } of held) {
      await until(() => worker?.hasReached(gate), `${gate} to be reached`);
      const command: Command = (verb, ...flags) =>
        cli('activity', verb, '-w', run.workflowId, '-a', id, ...flags);
      await act({ point, run, id, command, goesOn: () => worker?.letGo(gate) });
    }
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, name, undisturbed);
  }

  const pending = async (run: RunHandle, id: string) =>
    ((await run.describe()).raw.pendingActivities ?? []).find(({ activityId }) => activityId === id);
  /** Returns after a later heartbeat, whose answer tells the worker what was requested before. */
  async function heard(run: RunHandle, id: string): Promise<void> {
    const asked = Date.now();
    await until(async () => {
      const { seconds, nanos } = (await pending(run, id))?.lastHeartbeatTime ?? {};
      return 1000 * Number(seconds ?? 0) + Number(nanos ?? 0) / 1e6 > asked;
    }, `a heartbeat of ${id}`);
  }
  const waits = async (run: RunHandle) => waitingFor(cluster.temporal.client, run);

  it('pausing activities: an attempt ends where it can, and status says what is paused and how to continue', async () => {
    await atEachMoment('paused', async ({ point, run, id, command, goesOn }) => {
      expect(await command('pause')).toEqual({ code: 0, output: '', errors: '' });
      await heard(run, id);
      // A busy worker may not have read the answer yet; it has once it sends the next heartbeat.
      await heard(run, id);
      expect((await waits(run)).find(({ activity }) => activity === id)?.reason).toContain('is being paused');
      goesOn();
      if (stopsThere.includes(point)) {
        const reason = await until(
          async () => (await waits(run)).find(({ reason }) => reason.startsWith('it is paused'))?.reason,
          `${id} to be paused`,
        );
        expect(reason).toBe(
          `it is paused; continue with: temporal activity unpause -w train/paused -a ${id}`,
        );
        expect((await command('unpause')).code).toBe(0);
      } else {
        await until(async () => !(await pending(run, id)), `${id} to end by itself`);
        expect((await command('unpause')).errors).toMatch(/Can't find pending activity|already completed/);
      }
    });
  });

  it('resetting activities: they start again and adopt the records', async () => {
    await atEachMoment('reset', async ({ run, id, command, goesOn }) => {
      expect((await command('reset')).code).toBe(0);
      await heard(run, id);
      goesOn();
    });
  });

  it('changing time-outs and retries of activities: they end within the new limits', async () => {
    await atEachMoment('options', async ({ run, id, command, goesOn }) => {
      const answer = await command(
        'update-options',
        '--heartbeat-timeout',
        '7s',
        '--retry-maximum-interval',
        '1s',
      );
      expect(answer.output).toMatch(/HeartbeatTimeout +7s[^]*MaximumInterval +1s/);
      await heard(run, id);
      goesOn();
    });
  });

  it('failing activities: the run is blocked until it is resumed, or takes the next checkpoint instead', async () => {
    await atEachMoment('failed', async ({ run, id, command, goesOn }) => {
      expect(await command('fail', '--reason', 'I say so')).toEqual({ code: 0, output: '', errors: '' });
      if (!id.endsWith('upload')) {
        const status = await until(async () => {
          const found = await run.query(statusQuery);
          return found.blocked && found;
        }, 'the run to be blocked');
        expect(status.blocked).toEqual({
          reason: 'I say so',
          remedy: 'Fix the cause. Then: longhaul resume failed',
        });
        await run.executeUpdate(resumeUpdate);
      }
      goesOn();
    });
  });

  it('completing activities with a wrong result: the run is blocked, says so, and continues after resume', async () => {
    await atEachMoment('completed', async ({ run, id, command, goesOn }) => {
      expect((await command('complete', '--result', 'null')).code).toBe(0);
      if (!id.endsWith('upload')) {
        const status = await until(async () => {
          const found = await run.query(statusQuery);
          return found.blocked && found;
        }, 'the run to be blocked');
        expect(status.blocked?.reason).toContain(`${id} was completed by hand with null`);
        await run.executeUpdate(resumeUpdate);
      }
      goesOn();
    });
  });

  it('while the run is paused no activity is pending: each command says so, and changes nothing', async () => {
    const [node] = cluster.nodes;
    const gate = 'episode-written.step-000002.collect';
    node?.hold(gate);
    const run = await cluster.run(spec.named('resting'));
    await until(() => node?.hasReached(gate), 'the step to be sampled');
    await run.executeUpdate(pauseUpdate);
    node?.letGo(gate);
    await until(async () => (await run.query(statusQuery)).phase === 'paused', 'the run to be paused');
    const before = (await run.describe()).historyLength;
    const cli = temporalCli(cluster.temporal.address);
    const at = ['-w', run.workflowId, '-a', 'step-000003/collect'];
    for (const [verb, ...flags] of [
      ['pause'],
      ['unpause'],
      ['reset'],
      ['update-options', '--heartbeat-timeout', '5s'],
      ['fail'],
      ['complete', '--result', '{}'],
    ] as [string, ...string[]][]) {
      const { code, errors } = await cli('activity', verb, ...at, ...flags);
      expect({
        verb,
        code,
        said: /Can't find pending activity|cannot find pending activity/i.test(errors),
      }).toEqual({
        ...{ verb, code: 1, said: true },
      });
    }
    expect((await run.describe()).historyLength).toBe(before);
    await run.executeUpdate(resumeUpdate);
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'resting', undisturbed);
  });
});
