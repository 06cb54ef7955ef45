// A run that holds several nodes: the first does all kinds of work, the others only play ranges of a step's slots.
import { ApplicationFailure, Context } from '@temporalio/activity';
import { describe, expect, it } from 'vitest';
import { pauseNowUpdate, resumeUpdate, revokedSignal } from '../../../src/workflows/messages.js';
import {
  gate,
  grpoPhases,
  type RunHandle,
  type ScriptedRun,
  startRun,
  uniqueName,
  uniqueScript,
  until,
  useTemporal,
  withWorkers,
} from '../scripted-run.js';

interface Played {
  node: string;
  activity: string;
  slots?: [number, number];
  keep?: boolean;
}

interface TwoNodes {
  script: ScriptedRun;
  /** Ids of the granted leases, the first node's first. */
  leases: string[];
  /** In the order in which the activities began. */
  played: Played[];
  /** For each update, the seconds of the other node's calls that it received. */
  elsewhere: number[];
  /** Throws or waits before a node plays its share. */
  before: { share: (at: { node: string; step: number; slots: [number, number] }) => Promise<void> | void };
  first: string;
  second: string;
}

describe.concurrent('a run with two nodes', () => {
  const temporal = useTemporal();

  /** Four GRPO steps. One node plays the first step, during which the second node is granted. */
  async function withTwoNodes(
    use: (nodes: TwoNodes, run: RunHandle) => Promise<void>,
    eval_interval = 0,
  ): Promise<TwoNodes> {
    const phases = grpoPhases(4);
    const script = uniqueScript('two', { phases, ckpt_interval: 2, eval_interval });
    const [first, second] = [script.node, uniqueName('second')];
    const before = { share: () => undefined };
    const nodes: TwoNodes = { script, leases: [], played: [], elsewhere: [], before, first, second };
    const { openRun } = script.activities;
    script.activities.openRun = async (input) => ({
      ...(await openRun(input)),
      placement: { priority: 0, nodes: 2 },
    });
    script.grant = ({ lease }) => [first, second][nodes.leases.push(lease) - 1] ?? null;
    const on = (node: string) => ({
      node,
      activities: {
        ...script.activities,
        collectRollouts: async (input: Parameters<typeof script.activities.collectRollouts>[0]) => {
          const { slots, keep, step } = input;
          const activity = Context.current().info.activityId;
          nodes.played.push({ node, activity, slots, ...(keep ? { keep } : {}) });
          await nodes.before.share({ node, step, slots });
          return script.activities.collectRollouts(input);
        },
        updatePolicy: (input: Parameters<typeof script.activities.updatePolicy>[0]) => {
          nodes.elsewhere.push(input.elsewhere ?? 0);
          return script.activities.updatePolicy(input);
        },
        uploadCheckpoint: (input: Parameters<typeof script.activities.uploadCheckpoint>[0]) => {
          nodes.played.push({ node, activity: Context.current().info.activityId });
          return script.activities.uploadCheckpoint(input);
        },
      },
    });
    const held = gate();
    script.before = (call) => (call === 'update 1' ? held.wait() : undefined);
    await withWorkers(temporal, on(second), () =>
      withWorkers(temporal, on(first), async (queue) => {
        const run = await startRun(temporal, queue, script.outline.name);
        await until(run, ({ sharingNodes }) => sharingNodes.length === 1);
        held.release();
        await use(nodes, run);
      }),
    );
    return nodes;
  }

  it('gives each node a range of slots, from the step after the grant; only the first node saves and uploads', async () => {
    const { played, elsewhere, first, second } = await withTwoNodes(async (_, run) => {
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 4 });
    });
    const at = (step: number): Played[] =>
      played
        .filter(({ activity }) => activity.startsWith(`step-00000${step}/collect`))
        .sort((a, b) => (a.activity < b.activity ? -1 : 1));
    expect(at(1)).toEqual([{ node: first, activity: 'step-000001/collect', slots: [0, 4] }]);
    for (const step of [2, 3, 4]) {
      expect(at(step)).toEqual([
        {
          ...{ node: first, activity: `step-00000${step}/collect`, slots: [0, 2] },
          ...(step === 3 ? { keep: true } : {}),
        },
        { node: second, activity: `step-00000${step}/collect-2`, slots: [2, 4] },
      ]);
    }
    // Each call of the script takes half a second.
    expect(elsewhere).toEqual([0, 0.5, 0.5, 0.5]);
    const uploads = played.filter(({ activity }) => activity.endsWith('/upload'));
    expect(uploads.map(({ node }) => node)).toEqual([first, first]);
  });

  it('begins a step again on both nodes if a record of one share was quarantined', async () => {
    const { script, played } = await withTwoNodes(async ({ before, second }, run) => {
      let failed = false;
      before.share = ({ node, step }) => {
        if (step !== 3 || failed) return;
        // The other share would take for ever.
        if (node !== second) return Context.current().cancelled.then(() => undefined);
        failed = true;
        throw ApplicationFailure.nonRetryable('an episode is unreadable', 'UnreadableRecord');
      };
      const { blocked } = await until(run, ({ phase }) => phase === 'blocked');
      expect(blocked?.reason).toContain('an episode is unreadable');
      await run.executeUpdate(resumeUpdate);
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 4 });
    });
    expect(script.calls.filter((call) => call === 'plan 3')).toHaveLength(2);
    expect(played.filter(({ activity }) => activity === 'step-000003/collect')).toHaveLength(2);
    expect(played.filter(({ activity }) => activity === 'step-000003/collect-2')).toHaveLength(2);
  });

  it('continues its evaluation if the share that began the search for a node is cancelled', async () => {
    const evaluating = gate();
    const { script } = await withTwoNodes(async ({ script: found, leases, before, first, second }, run) => {
      const asked = [null, first, second];
      found.grant = () => asked.shift() ?? null;
      found.before = (call) => (call === 'evaluate interval 2' ? evaluating.wait() : undefined);
      const tried = new Set<string>();
      before.share = ({ node, step }) => {
        if (step !== 3 || tried.has(node)) return;
        tried.add(node);
        if (node === first) return Context.current().cancelled.then(() => undefined);
        throw ApplicationFailure.nonRetryable('an episode is unreadable', 'UnreadableRecord');
      };
      await Promise.all([evaluating.reached, until(run, ({ phase }) => phase === 'blocked')]);
      const nodes = [first, second];
      for (const [index, node] of nodes.entries())
        await run.signal(revokedSignal, { lease: leases[index]!, node, reason: 'lost' });
      await until(run, ({ waitsFor }) => waitsFor !== null);
      evaluating.release();
      await run.executeUpdate(resumeUpdate);
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 4 });
    }, 2);
    expect(script.calls).toContain('evaluate interval 2');
  });

  it('rests on both nodes during a pause `now`, and then completes the same plan', async () => {
    const { script, played } = await withTwoNodes(async ({ before }, run) => {
      let begun = 0;
      const cutOff = gate();
      before.share = ({ step }) => (step === 3 && ++begun <= 2 ? cutOff.wait() : undefined);
      await until(run, () => begun === 2);
      await run.executeUpdate(pauseNowUpdate);
      await until(run, ({ phase }) => phase === 'paused');
      await run.executeUpdate(resumeUpdate);
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 4 });
    });
    expect(script.calls.filter((call) => call === 'plan 3')).toHaveLength(1);
    for (const share of ['collect', 'collect-2'])
      expect(played.filter(({ activity }) => activity === `step-000003/${share}`)).toHaveLength(2);
  });
});
