// A node freezes, like a suspended machine. A server that answered in time is not charged for the pause (R25).
import { readFileSync } from 'node:fs';
import { createServer, connect, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from '../../support/cluster/cluster.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';

const freezes = 20;
const frozenMs = 5_000;
const answersAfterMs = 200;

/** A proxy before a server that delays each of its answers. */
async function startSlowProxy(target: string) {
  const { hostname, port } = new URL(target);
  const server = createServer((near) => {
    const far = connect(Number(port), hostname);
    near.pipe(far);
    far.on('data', (chunk) => void setTimeout(() => near.writable && near.write(chunk), answersAfterMs));
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => void server.close(),
  };
}

/** On Linux: whether the main thread is running right now. */
function isComputing(pid: number): boolean {
  return readFileSync(`/proc/${pid}/task/${pid}/stat`, 'utf8').split(') ')[1]?.startsWith('R') === true;
}

describe('a node worker that is frozen', () => {
  let cluster: Cluster;
  let node: WorkerProcess;
  let proxy: Awaited<ReturnType<typeof startSlowProxy>>;
  let spec: (name: string) => RunSpec;
  let undisturbed: Verdict;

  beforeAll(async () => {
    cluster = await Cluster.start({ nodes: 0 });
    proxy = await startSlowProxy(cluster.environments.url);
    node = await cluster.startNode('frozen', ['--environments', proxy.url]);
    const { named } = await smallRun(join(cluster.folder, 'data'));
    spec = (name) => {
      const run = named(name);
      // One charged failure makes an outcome unknown.
      const generator = {
        ...run.generator,
        call_timeout_s: 3,
        max_episode_failures: 1,
        max_turns: 4,
        n_samples_per_prompt: 16,
      };
      return { ...run, generator, trainer: { ...run.trainer, max_training_steps: 6 } };
    };
    undisturbed = await undisturbedVerdict(cluster, spec);
  });
  afterAll(async () => {
    await cluster?.stop();
    proxy?.stop();
  });

  it('20 times for 5 s at random moments charges no server, and the run has the same bits', async () => {
    expect(
      undisturbed.episodes.filter(({ outcome }) => (outcome as { status: string }).status !== 'graded'),
    ).toEqual([]);
    let frozen = 0;
    for (let n = 1; frozen < freezes; n++) {
      const name = `frozen-${n}`;
      const run = await cluster.run(spec(name));
      let over = false;
      const ended = cluster.ended(run, 600_000).finally(() => (over = true));
      while (!over && frozen < freezes) {
        await delay(100 + 900 * Math.random());
        // Freeze the process while it computes: then its timers run first when it wakes. A process that waits for input would first read
        // the answers.
        for (let looks = 0; looks < 2_000 && !over && !isComputing(node.pid); looks++)
          if (looks % 20 === 0) await delay(1);
        if (over) break;
        process.kill(node.pid, 'SIGSTOP');
        await delay(frozenMs);
        process.kill(node.pid, 'SIGCONT');
        frozen += 1;
      }
      expect(await ended).toMatchObject({ ended: 'completed' });
      await expectEqual(cluster.store, name, undisturbed);
    }
    expect(frozen).toBe(freezes);
  });
});
