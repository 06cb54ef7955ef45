// A node that is told to leave (SIGTERM: a spot notice, a deployment) hands over what it has within its grace.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from '../support/cluster.js';
import { smallRun } from '../support/small-run.js';
import type { RunSpec } from '../../src/spec/run-spec.js';

describe('a node that is told to leave', { timeout: 150_000 }, () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  beforeAll(async () => {
    cluster = await Cluster.start({ nodes: 0 });
    spec = await smallRun(join(cluster.folder, 'data'));
  }, 120_000);
  afterAll(() => cluster?.stop());

  it('ends within its grace also where work cannot be ended, and at once at a second signal', async () => {
    const node = await cluster.startNode('stuck', ['--grace', '4']);
    const points = [1, 2].map((step) => `update-recorded.step-00000${step}.update`);
    for (const point of points) node.hold(point);
    const run = await cluster.run(spec.named('stuck'));
    const [first = '', second = ''] = points;
    await cluster.firstAt(first, [node]);
    const left = await node.leave();
    expect(left).toMatchObject({ code: 0 });
    expect(left.seconds).toBeLessThan(4);
    expect(node.log).toContain('ended before all of its work had');

    node.start();
    await cluster.firstAt(second, [node]);
    const ended = await node.leave(['SIGTERM', 'SIGINT']);
    expect(ended).toMatchObject({ code: 1 });
    expect(ended.seconds).toBeLessThan(2);

    node.letGo(second);
    node.start();
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    expect(await node.leave()).toMatchObject({ code: 0 });
  });
});
