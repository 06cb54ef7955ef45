// A person changes a run while its processes die, and a step contains the same task twice.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster } from '../support/cluster/cluster.js';
import { startEnvironmentProcess } from '../support/servers/environment-process.js';
import { findEngine } from '../support/find-tools.js';
import { borrowCluster, returnCluster, tokenVariable } from '../support/cluster/shared-cluster.js';
import { smallRun } from '../support/small-run.js';
import { undisturbedVerdict } from '../support/cluster/undisturbed.js';
import { until } from '../support/until.js';
import { expectEqual, verdictOf } from '../support/verdict.js';
import { replayUpdates } from '../../src/activities/reports/replay-audit.js';
import { createNativeEngine } from '../../src/engine/native/native-engine.js';
import type { GrpoPlan } from '../../src/spec/records/plan.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { controlFolder, episodesFolder } from '../../src/store/record-keys.js';
import { readSequence } from '../../src/store/records/records.js';
import { readPlan } from '../../src/store/runs/run-records.js';
import {
  pauseNowUpdate,
  resumeUpdate,
  setHyperparametersUpdate,
  statusQuery,
} from '../../src/workflows/messages.js';

describe('a run with one node and one orchestrator', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };

  beforeAll(async () => {
    cluster = await borrowCluster();
    spec = await smallRun(join(cluster.folder, 'data'));
  });
  afterAll(() => returnCluster(cluster));

  const node = () => cluster.nodes[0] as (typeof cluster.nodes)[number];
  const orchestrator = () => cluster.orchestrators[0] as (typeof cluster.orchestrators)[number];
  const learningRates = async (run: string): Promise<(number | undefined)[]> => {
    const plans = await Promise.all([2, 3, 4].map((step) => readPlan(cluster.store, { run, step })));
    return plans.map(({ optimizer }) => optimizer.learning_rates[0]);
  };

  /** Sets lr while the first GRPO step is being collected. With `kills`, the orchestrator and the node are killed right after. */
  async function changedInMidCollect(name: string, kills: boolean): Promise<void> {
    const point = 'episode-written.step-000002.collect';
    node().hold(point);
    const run = await cluster.run(spec.named(name));
    await cluster.firstAt(point, cluster.nodes);
    await run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 4e-3 }], updateId: 'faster' });
    if (kills) {
      await Promise.all([orchestrator().kill(), node().kill()]);
      node().letGo(point);
      orchestrator().start();
      node().start();
      // The person got no answer and sends the Update again under the same id.
      await run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 4e-3 }], updateId: 'faster' });
    }
    node().letGo(point);
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
  }

  it('records a change of lr during a collect once, and keeps it from the next plan on, although orchestrator and node die; a replay gives equal updates', async () => {
    await changedInMidCollect('changed', false);
    await changedInMidCollect('changed-and-killed', true);
    for (const name of ['changed', 'changed-and-killed']) {
      const control = await readSequence(cluster.store, controlFolder(name), 'control');
      expect(control.map(({ change }) => change)).toEqual([{ kind: 'setHyperparameters', lr: 4e-3 }]);
      expect(await learningRates(name)).toEqual([1e-3, 4e-3, 4e-3]);
    }
    await expectEqual(cluster.store, 'changed-and-killed', await verdictOf(cluster.store, 'changed'));
    const engine = createNativeEngine({ binary: findEngine() });
    try {
      const replay = await replayUpdates(
        { store: cluster.store, engine, log: () => undefined },
        'changed-and-killed',
        { from: 1, to: 4 },
      );
      expect(replay).toMatchObject({ equal: true, steps: { length: 4 } });
    } finally {
      await engine.close();
    }
  });

  it('is paused in the middle of a step, keeps finished episodes, and ends in the same state as a run without a pause', async () => {
    const server = await startEnvironmentProcess();
    const paused = spec.named('paused-amid');
    const environments = paused.environments.map((environment) =>
      environment.env_key === 'booking'
        ? { ...environment, url: server.url, grading_token_env: tokenVariable }
        : environment,
    );
    const point = 'plan-written.step-000002.plan';
    orchestrator().hold(point);
    const run = await cluster.run({ ...paused, environments });
    await cluster.firstAt(point, cluster.orchestrators);
    // One group finishes. The other group stays in flight while its server is stopped.
    server.child.kill('SIGSTOP');
    orchestrator().letGo(point);
    const finished = (): Promise<string[]> => cluster.store.listFolder(episodesFolder('paused-amid', 2));
    await until(async () => (await finished()).length === 4, 'the group of one app to finish');
    expect(await run.executeUpdate(pauseNowUpdate)).toMatchObject({ n: 1, paused: true });
    await until(async () => (await run.query(statusQuery)).phase === 'paused', 'the run to be paused');
    server.child.kill('SIGCONT');
    expect((await run.query(statusQuery)).step).toBe(1);
    expect(await finished()).toHaveLength(4);
    await run.executeUpdate(resumeUpdate);
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await server.kill();
    await expectEqual(cluster.store, 'paused-amid', await undisturbedVerdict(cluster, spec.named));
  });

  it('samples a task that is in two slots independently in each slot, and each sample only once, although the node dies', async () => {
    const single = await smallRun(join(cluster.folder, 'one-task'), { tasks: 1 });
    await cluster.ended(await cluster.run(single.named('one-task')));
    const undisturbed = await verdictOf(cluster.store, 'one-task');
    expect(undisturbed).toMatchObject({ violations: [], applied: 4 });
    const { slots } = (await readPlan(cluster.store, { run: 'one-task', step: 2 })) as GrpoPlan;
    expect(new Set(slots.map(({ task_key }) => task_key)).size).toBe(1);
    const sampled = (slot: number) =>
      undisturbed.episodes.filter((one) => one.step === 2 && one.slot === slot).map((one) => one.logprobs);
    expect(sampled(0)).not.toEqual(sampled(1));

    const point = 'episode-written.step-000002.collect';
    node().hold(point);
    const run = await cluster.run(single.named('one-task-killed'));
    await cluster.firstAt(point, cluster.nodes);
    await until(
      async () => (await cluster.store.listFolder(episodesFolder('one-task-killed', 2))).length > 0,
      'a finished episode',
    );
    await node().kill();
    node().letGo(point);
    node().start();
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'one-task-killed', undisturbed);
  });
});
