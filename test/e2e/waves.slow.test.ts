// Real processes are killed between the waves of a step and amid one: the run ends with the same bits as an undisturbed run.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readWaves } from '../../src/store/runs/waves.js';
import { readPlan } from '../../src/store/runs/run-records.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { Cluster } from '../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../support/cluster/shared-cluster.js';
import { smallRun } from '../support/small-run.js';
import { expectEqual, type Verdict, verdictOf } from '../support/verdict.js';
import { until } from '../support/until.js';
import type { WorkerProcess } from '../support/worker-process.js';

/** The first step with rollouts. */
const step = 2;

describe('a step with waves', () => {
  let cluster: Cluster;
  let named: (name: string) => RunSpec;
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await borrowCluster();
    const small = await smallRun(join(cluster.folder, 'data'));
    named = (name) => {
      const spec = small.named(name);
      return {
        ...spec,
        generator: { ...spec.generator, n_samples_per_prompt: 2 },
        trainer: {
          ...spec.trainer,
          train_batch_size: 3,
          dynamic_sampling: { type: 'filter', max_sample_batches: 4 },
        },
      };
    };
    await cluster.ended(await cluster.run(named('waves')));
    undisturbed = await verdictOf(cluster.store, 'waves');
  });
  afterAll(() => returnCluster(cluster));

  const wavesIn = async (run: string) =>
    (await readWaves(cluster.store, await readPlan(cluster.store, { run, step }))).map(
      ({ slots, cursors }) => ({ slots, cursors }),
    );

  it('changes no bit if orchestrator and node die between its waves and amid them', async () => {
    expect(undisturbed.violations).toEqual([]);
    expect((await wavesIn('waves')).length).toBeGreaterThan(0);
    const [orchestrator] = cluster.orchestrators as [WorkerProcess];
    const [node] = cluster.nodes as [WorkerProcess];
    const activity = `step-${String(step).padStart(6, '0')}`;
    const points: [WorkerProcess, string][] = [
      [orchestrator, `wave-built.${activity}.wave-1`],
      [orchestrator, `wave-written.${activity}.wave-1`],
      [node, `episode-written.${activity}.wave-1-collect`],
    ];
    for (const [worker, point] of points) worker.hold(point);
    const run = await cluster.run(named('waves-killed'));
    for (const [worker, point] of points) {
      await until(() => worker.hasReached(point), `${worker.name} to reach ${point}`);
      await worker.kill();
      worker.letGo(point);
      worker.start();
    }
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed' });
    expect(await wavesIn('waves-killed')).toEqual(await wavesIn('waves'));
    await expectEqual(cluster.store, 'waves-killed', undisturbed);
  });
});
