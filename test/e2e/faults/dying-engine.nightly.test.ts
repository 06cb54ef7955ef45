// An engine is killed again and again, as happens when other processes take the memory. The run waits until the kills stop (R27).
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from '../../support/cluster/cluster.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';

const killedForMs = 120_000;

describe('an engine that dies every 0.1 to 2.5 s', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await Cluster.start();
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(() => cluster?.stop());

  it('for two minutes costs only time: afterwards the run continues by itself, with the same bits', async () => {
    const node = cluster.nodes[0] as WorkerProcess;
    const until = Date.now() + killedForMs;
    let kills = 0;
    for (let n = 1; Date.now() < until; n++) {
      const name = `killed-${n}`;
      const run = await cluster.run(spec.named(name));
      let over = false;
      // `ended` rejects if the run is blocked.
      const ended = cluster.ended(run, 600_000).finally(() => (over = true));
      while (!over && Date.now() < until) {
        await delay(100 + 2_400 * Math.random());
        const pid = node.enginePid();
        if (pid === null) continue;
        process.kill(pid, 'SIGKILL');
        kills += 1;
      }
      expect(await ended).toMatchObject({ ended: 'completed', step: 4 });
      await expectEqual(cluster.store, name, undisturbed);
    }
    expect(kills).toBeGreaterThan(20);
  });
});
