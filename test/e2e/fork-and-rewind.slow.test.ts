// Forks and rewinds from the command line, with real processes. The new timeline takes the same steps as the old one, and an orchestrator
// that dies in between leaves no half-made timeline.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { auditRun } from '../../src/activities/reports/audit-run.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { namesFolder, stepsFolder } from '../../src/store/record-keys.js';
import { readState } from '../../src/store/runs/run-records.js';
import { statusQuery } from '../../src/workflows/messages.js';
import type { Cluster, RunHandle } from '../support/cluster/cluster.js';
import { borrowCluster, returnCluster } from '../support/cluster/shared-cluster.js';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';

const steps = [0, 1, 2, 3, 4];

describe('forks and rewinds', () => {
  let cluster: Cluster;
  let small: { named(name: string): RunSpec };
  let states: string[];
  beforeAll(async () => {
    cluster = await borrowCluster();
    small = await smallRun(join(cluster.folder, 'data'));
    await cluster.ended(await cluster.run(small.named('done')));
    states = await statesOf('done');
    expect(new Set(states).size).toBe(steps.length);
  });
  afterAll(() => returnCluster(cluster));

  const statesOf = (run: string) => Promise.all(steps.map((step) => readState(cluster.store, run, step)));
  const handleOf = (name: string): RunHandle =>
    Object.assign(cluster.temporal.client.workflow.getHandle(`train/${name}`), {
      firstExecutionRunId: '',
    }) as RunHandle;

  async function longhaul(
    ...args: string[]
  ): Promise<{ code: number | null; output: string; errors: string }> {
    const child = spawn(resolve('bin/longhaul'), args, {
      cwd: cluster.folder,
      env: {
        ...process.env,
        TEMPORAL_ADDRESS: cluster.temporal.address,
        LONGHAUL_STORE: cluster.storeAddress,
      },
    });
    let [output, errors] = ['', ''];
    child.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
    child.stderr.on('data', (piece: Buffer) => (errors += piece.toString()));
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, output, errors };
  }

  /** The answer of `longhaul` on standard output. Throws if the command fails. */
  async function answer(...args: string[]): Promise<string> {
    const { code, output, errors } = await longhaul(...args);
    expect({ code, errors }).toMatchObject({ code: 0 });
    return output;
  }

  it('a rewind whose orchestrator is killed between two records is finished by the next orchestrator', async () => {
    const [orchestrator] = cluster.orchestrators;
    if (!orchestrator) throw new Error('there is no orchestrator');
    orchestrator.hold('fork-recorded');
    await answer('rewind', 'done@2', '--detach');
    await until(() => orchestrator.hasReached('fork-recorded'), 'the rewind to be half done');
    await orchestrator.kill();
    orchestrator.letGo('fork-recorded');
    orchestrator.start();
    expect(await cluster.ended(handleOf('done'))).toMatchObject({
      run: 'done~2',
      ended: 'completed',
      step: 4,
    });
    expect(await statesOf('done~2')).toEqual(states);
    expect(await cluster.store.listFolder(stepsFolder('done~2'))).toEqual(['000003/', '000004/']);
    for (const run of ['done', 'done~2']) expect((await auditRun(cluster.store, run)).violations).toEqual([]);
  });

  it('a rewind is shown by every command, and a start of the name continues the new timeline', async () => {
    expect(await answer('status', 'done')).toContain('continues from done after step 2');
    expect(await answer('audit', 'done')).toMatch(/needed by +done~2 after step 2/);
    expect(await answer('audit', 'done~2')).toContain('continues from done after step 2');
    const runs = await answer('runs');
    expect(runs).toMatch(/^done~2 +completed .* done@2$/m);
    expect(runs.match(/^done .*/gm)).toEqual([expect.stringMatching(/^done +rewound .*[^@]*$/)]);
    await answer('report', 'done~2', '-o', 'report.html');
    const report = readFileSync(join(cluster.folder, 'report.html'), 'utf8');
    expect(report).toContain('continues from done after step 2');
    expect(report).toContain('grpo <span class="quiet">of done</span>');
    expect(await cluster.ended(await cluster.run(small.named('done')))).toMatchObject({
      run: 'done~2',
      step: 4,
    });
    expect(await answer('train', '--run', 'done')).toMatch(/^done~2 completed at step 4/);
  });

  it('a running run is cancelled, awaited and rewound; its finished steps stay with the old timeline', async () => {
    const [node] = cluster.nodes;
    if (!node) throw new Error('there is no node');
    const point = 'update-recorded.step-000003.update';
    node.hold(point);
    const run = await cluster.run(small.named('live'));
    await cluster.firstAt(point, [node]);
    expect(await longhaul('rebase', 'live', '--numerics', 'cpu/99')).toMatchObject({
      code: 1,
      errors: expect.stringContaining('live needs no rebase') as string,
    });
    expect((await run.describe()).status.name).toBe('RUNNING');
    const rewinding = longhaul('rewind', 'live@1', '--detach');
    await until(
      async () => (await run.describe()).status.name !== 'RUNNING',
      'the workflow to end by its cancellation',
    );
    node.letGo(point);
    expect(await rewinding).toMatchObject({ code: 0 });
    expect(await cluster.ended(handleOf('live'))).toMatchObject({ run: 'live~2', step: 4 });
    expect(await statesOf('live~2')).toEqual(states);
    expect((await handleOf('live').query(statusQuery)).lineage).toEqual({ run: 'live', step: 1 });
    for (const name of ['live', 'live~2'])
      expect((await auditRun(cluster.store, name)).violations).toEqual([]);
  });

  it('a rewind that lost its workflow after it took its name is not made a second time when it is requested again', async () => {
    const [orchestrator] = cluster.orchestrators;
    if (!orchestrator) throw new Error('there is no orchestrator');
    orchestrator.hold('fork-named');
    await answer('rewind', 'live@2', '--detach');
    await until(() => orchestrator.hasReached('fork-named'), 'the rewind to have its name');
    await orchestrator.kill();
    await handleOf('live').terminate('the test loses it');
    orchestrator.letGo('fork-named');
    orchestrator.start();
    await answer('rewind', 'live@2', '--detach');
    expect(await cluster.ended(handleOf('live'))).toMatchObject({ run: 'live~3', step: 4 });
    expect(await cluster.store.listFolder(namesFolder('live'))).toEqual(['1.json', '2.json', '3.json']);
    expect(await statesOf('live~3')).toEqual(states);
  });

  it('a fork’s printed spec starts the fork by Temporal alone, and trains further than its parent', async () => {
    const args = ['fork', 'done@3', '--name', 'branch', '--print', '--set'];
    const printed = JSON.parse(await answer(...args, 'max_training_steps=4')) as RunSpec;
    expect(printed).toMatchObject({ name: 'branch', fork: { run: 'done', step: 3 } });
    expect(await cluster.ended(await cluster.run(printed))).toMatchObject({ run: 'branch', step: 5 });
    expect(await statesOf('branch')).toEqual(states);
    expect((await auditRun(cluster.store, 'branch')).violations).toEqual([]);
  });

  it.each([
    { args: ['fork', 'nobody@1', '--name', 'x'], says: 'there is no run "nobody"' },
    { args: ['fork', 'done@9', '--name', 'x'], says: 'the nearest committed steps are 2, 3, 4' },
    { args: ['fork', 'done@-1', '--name', 'x'], says: '"-1" is not a step: give a whole number, 0 or more' },
    { args: ['fork', 'done@3', '--name', 'done'], says: 'this would be a rewind: longhaul rewind done@3' },
    { args: ['fork', 'done@3', '--name', 'live'], says: 'run "live" exists and is no fork' },
    {
      args: ['fork', 'done@3', '--name', 'x', '--set', 'seed=9'],
      says: 'seed: a fork of done must keep its parent',
    },
    { args: ['fork', 'done@3', '--name', 'x', '--set', 'lrr=9'], says: 'did you mean' },
    {
      args: ['fork', 'done@3', '--name', 'x', '--set', 'max_training_steps=2'],
      says: 'nothing is left to train',
    },
    { args: ['rewind', 'done@4'], says: 'done~2 is at step 4: there is nothing to rewind' },
    { args: ['rewind', 'done'], says: 'which step?' },
    { args: ['rebase', 'done', '--numerics', 'cpu/2'], says: 'done~2 has numerics cpu/2 already' },
    { args: ['rewind', 'nobody@1'], says: 'there is no run "nobody"' },
  ])('$args is refused: $says', async ({ args, says }) => {
    expect(await longhaul(...args)).toMatchObject({
      code: 1,
      errors: expect.stringContaining(says) as string,
    });
  });
});
