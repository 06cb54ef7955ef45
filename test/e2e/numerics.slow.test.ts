// Runs in bf16: they wait for a node that computes it, end in one state whatever is killed, and take over runs of other numerics at a step.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { auditRun } from '../../src/activities/reports/audit-run.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { readRun, readState, readUpdates } from '../../src/store/runs/run-records.js';
import { statusQuery } from '../../src/workflows/messages.js';
import type { Cluster, RunHandle } from '../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../support/cluster/shared-cluster.js';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';
import { expectEqual, verdictOf } from '../support/verdict.js';
import type { WorkerProcess } from '../support/worker-process.js';

const bf16 = { backend: 'bf16-sm90', version: 1 };
const fork = 'fork in-fp32@2 --name taken-over --set model.numerics=bf16-sm90 --detach'.split(' ');

describe('a run in bf16', () => {
  let cluster: Cluster;
  let cpu: { named(name: string): RunSpec };
  let node: WorkerProcess;
  beforeAll(async () => {
    cluster = await borrowCluster();
    cpu = await smallRun(join(cluster.folder, 'data'));
  });
  afterAll(() => returnCluster(cluster));

  const named = (name: string): RunSpec => {
    const spec = cpu.named(name);
    return { ...spec, model: { ...spec.model, numerics: 'bf16-sm90' } };
  };

  async function longhaul(...args: string[]): Promise<{ code: number | null; output: string }> {
    const env = { TEMPORAL_ADDRESS: cluster.temporal.address, LONGHAUL_STORE: cluster.storeAddress };
    const child = spawn(resolve('bin/longhaul'), args, {
      cwd: cluster.folder,
      env: { ...process.env, ...env },
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (piece: Buffer) => (output += piece.toString()));
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, output };
  }

  it('waits for a node that computes it, and says how to start one', async () => {
    await cluster.ended(await cluster.run(cpu.named('in-fp32')));
    expect(await longhaul(...fork)).toMatchObject({
      code: 1,
      output: expect.stringMatching(
        /no living node computes with numerics bf16-sm90 .*LONGHAUL_NUMERICS=bf16-sm90/,
      ) as string,
    });
    const run = await cluster.run(named('waits'));
    await until(
      async () => (await run.query(statusQuery)).phase === 'blocked',
      'the run to say which node it lacks',
    );
    const { blocked } = await run.query(statusQuery);
    expect(blocked?.reason).toContain('no living node computes with numerics bf16-sm90, as waits needs');
    expect(blocked?.remedy).toContain('LONGHAUL_NUMERICS=bf16-sm90');
    node = await cluster.startNode('bf16', [], { LONGHAUL_NUMERICS: 'bf16-sm90' });
    await until(async () => (await run.query(statusQuery)).phase !== 'blocked', 'the node to take the run');
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    const updates = await readUpdates(cluster.store, 'waits', 1, 4);
    expect(updates.map(({ identity }) => identity.numerics)).toEqual([bf16, bf16, bf16, bf16]);
    const differences = updates.flatMap(
      ({ observed }) => observed.metrics['policy/rollout_train_logprob_diff_max'] ?? [],
    );
    expect(differences).toEqual([0, 0, 0]);
    expect(await longhaul('audit', 'waits', '--replay', '2..4')).toMatchObject({
      code: 0,
      output: expect.stringContaining('all equal: 2 updates') as string,
    });
    expect(await longhaul('export', 'waits@4', '--to', 'exported')).toMatchObject({ code: 0 });
    expect(await readState(cluster.store, 'waits', 0)).toBe(await readState(cluster.store, 'in-fp32', 0));
    expect(await readState(cluster.store, 'waits', 1)).not.toBe(await readState(cluster.store, 'in-fp32', 1));
  });

  it('ends in the state of an undisturbed run if its node is killed', async () => {
    const undisturbed = await verdictOf(cluster.store, 'waits');
    expect(undisturbed).toMatchObject({ violations: [], applied: 3 });
    const run = await cluster.run(named('killed'));
    for (const point of ['update-recorded.step-000002.update', 'update-recorded.step-000003.update']) {
      node.hold(point);
      await until(() => node.hasReached(point), `the node to reach ${point}`);
      await node.kill();
      node.letGo(point);
      node.start();
    }
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await expectEqual(cluster.store, 'killed', undisturbed);
  });

  it('takes over a run of other numerics at a step', async () => {
    expect(await longhaul(...fork)).toMatchObject({ code: 0 });
    const run = cluster.temporal.client.workflow.getHandle('train/taken-over') as RunHandle;
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    expect((await readRun(cluster.store, 'taken-over')).lineage).toMatchObject({
      rebase: { to: 2, numerics: bf16 },
    });
    const [last] = await readUpdates(cluster.store, 'taken-over', 4, 4);
    expect(last?.identity.numerics).toEqual(bf16);
    expect((await auditRun(cluster.store, 'taken-over')).violations).toEqual([]);
    expect((await auditRun(cluster.store, 'in-fp32')).violations).toEqual([]);
  });
});
