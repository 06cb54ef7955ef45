// A run moves to another node when the first node is lost with everything that it has not brought to the store.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from '../support/cluster.js';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';
import { expectEqual, verdictOf } from '../support/verdict.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { pauseUpdate, resumeUpdate, statusQuery } from '../../src/workflows/messages.js';

describe('a run whose node is lost with its disk', { timeout: 240_000 }, () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  beforeAll(async () => {
    cluster = await Cluster.start();
    spec = await smallRun(join(cluster.folder, 'data'));
    await cluster.ended(await cluster.run(spec.named('undisturbed')));
  }, 240_000);
  afterAll(() => cluster?.stop());

  it('continues on another node from the store: the newest checkpoint, and the logged updates after it', async () => {
    const [first] = cluster.nodes;
    if (!first) throw new Error('there is no node');
    const point = 'update-recorded.step-000003.update';
    first.hold(point);
    const run = await cluster.run(spec.named('moved'));
    await cluster.firstAt(point, [first]);
    await run.executeUpdate(pauseUpdate);
    first.letGo(point);
    await until(async () => {
      const { phase, lastCheckpoint } = await run.query(statusQuery);
      return phase === 'paused' && lastCheckpoint === 2;
    }, 'the run to be paused, with its checkpoint in the store');
    expect(await run.query(statusQuery)).toMatchObject({ step: 3, node: 'shared' });
    await first.kill();
    rmSync(join(cluster.folder, 'node-1', 'worker'), { recursive: true });

    await until(async () => (await run.query(statusQuery)).node === null, 'the pool to miss the first node');
    const second = await cluster.startNode('second');
    await run.executeUpdate(resumeUpdate);
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    expect(second.log).toContain('restored moved step 3: checkpoint 2 and 1 logged updates');
    await expectEqual(cluster.store, 'moved', await verdictOf(cluster.store, 'undisturbed'));
  });
});
