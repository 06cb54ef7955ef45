// Two nodes share the rollouts of each step. The result is the same as with one node (R13), and a node that is killed during its share
// loses only the turns that were in flight there (R9).
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster, RunHandle } from '../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../support/cluster/shared-cluster.js';
import { untilReported } from '../support/detection.js';
import { smallRun } from '../support/small-run.js';
import { undisturbedVerdict } from '../support/cluster/undisturbed.js';
import { until } from '../support/until.js';
import { expectEqual, type Verdict } from '../support/verdict.js';
import type { AttemptRecord } from '../../src/spec/records/attempt-records.js';
import { attemptsFolder, episodesFolder } from '../../src/store/record-keys.js';
import { requireRecord } from '../../src/store/records/records.js';
import { defaultPoolId, poolQuery, type PoolView } from '../../src/workflows/messages.js';

describe('a run that may use two nodes', () => {
  let cluster: Cluster;
  let started: (name: string) => Promise<RunHandle>;
  let alone: Verdict;
  beforeAll(async () => {
    cluster = await borrowCluster();
    const spec = await smallRun(join(cluster.folder, 'data'));
    alone = await undisturbedVerdict(cluster, spec.named);
    await cluster.startNode('second');
    started = (name) => cluster.run({ ...spec.named(name), placement: { priority: 0, nodes: 2 } });
  });
  afterAll(() => returnCluster(cluster));

  /** The first GRPO step, which requests the second node, and the next step, which both nodes share. */
  const [asking, shared] = [2, 3];

  const pool = (): Promise<PoolView> =>
    cluster.temporal.client.workflow.getHandle(defaultPoolId).query(poolQuery);

  async function attemptsAt(run: string, step: number): Promise<AttemptRecord[]> {
    const found: AttemptRecord[] = [];
    for await (const { key } of cluster.store.list(attemptsFolder(run, step)))
      found.push(await requireRecord(cluster.store, key, 'attempt'));
    return found;
  }
  const nodeOf = ({ observed }: AttemptRecord): string => observed.node.split('@')[0] ?? '';

  /** Holds the run before the shared step until both nodes are leased to it. */
  async function withBoth(name: string, then: () => void = () => undefined): Promise<RunHandle> {
    const point = `update-recorded.step-00000${asking}.update`;
    for (const node of cluster.nodes) node.hold(point);
    const run = await started(name);
    const { first } = await cluster.firstAt(point, cluster.nodes);
    await until(async () => {
      const { leases } = await pool();
      return leases.filter((lease) => lease.run === name).length === 2;
    }, 'both nodes to be granted');
    then();
    first.letGo(point);
    return run;
  }

  it('plays each step on both nodes, in ranges of slots, and ends with the same bits as on one node', async () => {
    const run = await withBoth('shared');
    await cluster.ended(run);
    await expectEqual(cluster.store, 'shared', alone);
    const attempts = await attemptsAt('shared', shared);
    expect(attempts.map(({ activity }) => activity).sort()).toEqual([
      `step-00000${shared}/collect`,
      `step-00000${shared}/collect-2`,
    ]);
    expect(new Set(attempts.map(nodeOf))).toEqual(new Set(['shared', 'second']));
    const [one, other] = attempts.map(({ starts }) => starts);
    expect([one?.length, other?.length]).toEqual([4, 4]);
    expect(new Set([...(one ?? []), ...(other ?? [])]).size).toBe(8);
  });

  it.each([
    ['collect', '0.3'],
    ['collect-2', '1.3'],
  ])('continues if the node of %s is killed in the middle of the step', async (share, lastRollout) => {
    const name = `killed-${share}`;
    const point = `episode-begun.step-00000${shared}.${share}.${lastRollout}`;
    const run = await withBoth(name, () => {
      for (const node of cluster.nodes) node.hold(point);
    });
    const { first: killed } = await cluster.firstAt(point, cluster.nodes);
    const folder = episodesFolder(name, shared);
    const finished = await until(async () => {
      const episodes = await cluster.store.listFolder(folder);
      return episodes.length === 7 && episodes;
    }, 'all episodes but one to be finished');
    await killed.kill();
    await cluster.ended(run);
    await expectEqual(cluster.store, name, alone);
    const attempts = await attemptsAt(name, shared);
    const retries = attempts.filter(({ activity }) => activity.includes(`/${share}.`));
    const again = retries.flatMap(({ starts }) => starts);
    expect(again.map((key) => key.slice(folder.length))).toHaveLength(1);
    expect(finished).not.toContain(again[0]?.slice(folder.length));
    killed.letGo(point);
    killed.start();
    for (const id of ['shared', 'second']) await untilReported(cluster.temporal.client, id);
  });
});
