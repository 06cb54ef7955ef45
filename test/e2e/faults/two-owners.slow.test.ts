// A run has only one owner (R20). Anybody else who starts the run is refused with the owner's name, or takes the run over and is then its
// only owner.
import { join } from 'node:path';
import { WorkflowFailedError } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster, type RunHandle } from '../../support/cluster/cluster.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { episodesFolder, ownersFolder, updateKey } from '../../../src/store/record-keys.js';
import { readSequence } from '../../../src/store/records/records.js';

describe('a run that is started twice', () => {
  let cluster: Cluster;
  let other: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await Cluster.start({ nodes: 2 });
    other = await Cluster.start({ store: cluster.storeAddress });
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(async () => {
    await other?.stop();
    await cluster?.stop();
  });

  const owners = async (name: string) => readSequence(cluster.store, ownersFolder(name), 'owner');

  /** Starts a run and holds its node at the end of the second step's collect. */
  async function held(name: string) {
    const point = 'episode-written.step-000002.collect';
    for (const node of cluster.nodes) node.hold(point);
    const run = await cluster.run(spec.named(name));
    const { first } = await cluster.firstAt(point, cluster.nodes);
    // Wait until all episodes are at the point, so that no episode is written while another worker looks for missing episodes.
    await until(
      async () => (await cluster.store.listFolder(episodesFolder(name, 2))).length === 8,
      'all episodes of step 2',
    );
    return { run, goesOn: () => first.letGo(point) };
  }

  it('by hand under another workflow id: the second start is refused and names the first, which ends as if it were alone', async () => {
    const { run, goesOn } = await held('twice');
    const second = await cluster.run(spec.named('twice'), { id: 'by-hand' });
    const failure = await failureOf(second);
    expect(failure).toMatchObject({ type: 'RunOwned' });
    expect(failure.message).toContain('train/twice');
    expect(failure.message).toContain(run.firstExecutionRunId);
    expect(failure.message).toContain('--take-over');
    goesOn();
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'twice', undisturbed);
    expect(await owners('twice')).toHaveLength(1);
  });

  it('at the same moment under two ids: exactly one of the two workflows trains it', async () => {
    const [one, two] = await Promise.all([
      cluster.run(spec.named('at-once')),
      cluster.run(spec.named('at-once'), { id: 'by-hand-at-once' }),
    ]);
    const ends = await Promise.allSettled([one.result(), two.result()]);
    expect(ends.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    const loser = ends[0].status === 'rejected' ? one : two;
    expect(await failureOf(loser)).toMatchObject({ type: 'RunOwned' });
    await expectEqual(cluster.store, 'at-once', undisturbed);
  });

  it('and taken over: the first workflow ends with OwnerChanged, and its late attempts change nothing', async () => {
    const { run, goesOn } = await held('overruled');
    const second = await cluster.run(spec.named('overruled'), { id: 'overruling', takeOver: true });
    await until(async () => (await owners('overruled')).length === 2, 'the second owner');
    goesOn();
    expect(await failureOf(run)).toMatchObject({ type: 'OwnerChanged' });
    expect(await cluster.ended(second)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'overruled', undisturbed);
  });

  it('on a second Temporal server: refused with the first server’s name; after the first workflow is closed the run continues there', async () => {
    const { run, goesOn } = await held('elsewhere');
    const refused = await failureOf(await other.run(spec.named('elsewhere')));
    expect(refused).toMatchObject({ type: 'RunOwned' });
    const [owner] = await owners('elsewhere');
    expect(refused.message).toContain(owner?.address);
    expect(refused.message).toContain('train/elsewhere');
    await run.terminate('its operator moves it');
    goesOn();
    const second = await other.run(spec.named('elsewhere'));
    expect(await other.ended(second)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'elsewhere', undisturbed);
  });

  it('on a second Temporal server while the first cannot be reached: refused, but possible with take-over', async () => {
    const { goesOn } = await held('unreachable');
    await cluster.killTemporal();
    const refused = await failureOf(await other.run(spec.named('unreachable')));
    expect(refused).toMatchObject({ type: 'RunOwned' });
    expect(refused.message).toContain('cannot be reached');
    goesOn();
    const second = await other.run(spec.named('unreachable'), { takeOver: true });
    expect(await other.ended(second)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'unreachable', undisturbed);
    expect(await cluster.store.head(updateKey('unreachable', 4))).not.toBeNull();
  });
});

/** Type and message of the failure that ended the run. */
async function failureOf(run: RunHandle): Promise<{ type: string; message: string }> {
  const error: unknown = await run.result().then(
    () => new Error(`${run.workflowId} was expected to fail, and has completed`),
    (failure: unknown) => failure,
  );
  if (!(error instanceof WorkflowFailedError)) throw error;
  const { type, message } = error.cause as Error & { type?: string };
  return { type: type ?? '', message };
}
